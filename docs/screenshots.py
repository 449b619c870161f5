"""Pictures of the web app in docs/pictures: the incident of ``taut demo``, as a browser shows it at 1280 × 720.

python docs/screenshots.py     needs chromium, and pip install playwright
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from shutil import which

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent / "pictures"
PRICE = ("--gpu-hour", "2.50EUR")


def main() -> None:
    """Analyse the demo in an empty folder, serve it, and take a picture of each page."""
    taut = [sys.executable, "-m", "taut"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*taut, "demo", "-q", *PRICE], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        env = {**os.environ, "NO_COLOR": "1"}
        serve = [*taut, "serve", "--no-open", "--port", "0"]
        with subprocess.Popen(serve, cwd=folder, stderr=subprocess.PIPE, text=True, env=env) as server:
            try:
                pictures(address(server))
            finally:
                server.terminate()


def address(server: subprocess.Popen[str]) -> str:
    """The address that the server prints."""
    assert server.stderr is not None
    found = next(match for line in server.stderr if (match := re.search(r"http://\S+", line)))
    return found.group(0)


def pictures(url: str) -> None:
    """The pages that the README and docs/serve.md show."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme="light", reduced_motion="reduce")
        page.goto(url)
        page.get_by_role("link", name="demo").first.click()
        taken(page, "overview")
        for view in ("Timeline", "Structure", "What if"):
            page.get_by_role("link", name=view, exact=True).click()
            taken(page, view.lower().replace(" ", ""))
        browser.close()


def taken(page: Page, name: str) -> None:
    """One picture, once nothing is loaded any more."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    page.screenshot(path=PICTURES / f"app-{name}.png")


if __name__ == "__main__":
    main()
