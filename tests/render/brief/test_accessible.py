"""A briefing in a browser, judged by axe-core: no violation, by day and by night.

Needs chromium, and axe.min.js of npm's axe-core: ``npm install axe-core``, ``TAUT_AXE=node_modules/axe-core/axe.min.js``.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from brief_documents import document
from taut.render.brief.html import render_html
from taut.render.brief.terms import explained

AXE = Path(os.environ.get("TAUT_AXE", "nowhere"))
CHROMIUM = which("chromium")
pytestmark = pytest.mark.skipif(
    not AXE.is_file() or CHROMIUM is None,
    reason="needs chromium and axe-core (npm install axe-core; TAUT_AXE is its axe.min.js)",
)
RUN = """
axe.run(document, {resultTypes: ["violations"]}).then(found => {
  const shown = document.createElement("pre");
  shown.id = "found";
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const nodes = one => one.nodes.map(node => node.target.join(" ") + ": " + node.failureSummary);
  const report = found.violations.map(one => [one.id, nodes(one)]);
  shown.textContent = JSON.stringify({dark, passes: found.passes.length, violations: report});
  document.body.append(shown);
});
"""


def judged(page: str, folder: Path, *options: str) -> dict[str, object]:
    """What axe finds. The page's policy, which forbids every script, is taken off for axe's own."""
    bare = re.sub(r"<meta http-equiv[^>]*>", "", page)
    scripted = bare.replace("</body>", f"<script>{AXE.read_text('utf-8')}</script><script>{RUN}</script></body>")
    (folder / "page.html").write_text(scripted, "utf-8")
    plain = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=60000",
    ]
    command = [CHROMIUM or "", *plain, *options, "--dump-dom", (folder / "page.html").as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    assert found, "axe gave no answer"
    answer: dict[str, object] = json.loads(html.unescape(found[1]))
    return answer


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_no_violation(dark: bool, width: int, tmp_path: Path) -> None:
    options = [f"--window-size={width},900", *(["--blink-settings=preferredColorScheme=0"] if dark else [])]
    found = judged(render_html(explained(document())), tmp_path, *options)
    assert found["dark"] is dark
    assert found["violations"] == []


def test_a_violation_is_found(tmp_path: Path) -> None:
    page = render_html(document()).replace("<html lang=", "<html data-lang=")
    found = judged(page, tmp_path)
    assert "html-has-lang" in json.dumps(found["violations"])
