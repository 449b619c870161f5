"""Pictures in docs/pictures: the web app with the incident of ``taut demo``, as a browser shows it at 1280 × 720; and
``taut watch top`` of a simulated job with a slow rank, at 80 × 24.

python docs/screenshots.py     needs chromium, and pip install playwright
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import which

from playwright.sync_api import Page, sync_playwright

PICTURES = Path(__file__).parent / "pictures"
TESTS = Path(__file__).parents[1] / "tests"
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
    watch_top()


def watch_top() -> None:
    """Have a collector hear simulated ranks until one of them is found slow, and take a picture of what top shows."""
    sys.path.insert(0, str(TESTS))
    from collecting import SECRET
    from simulated_ranks import simulated
    from taut.lab.live_jobs import LiveJob
    from taut.render.analysis_screen import Screen
    from taut.render.watch_screen import render_top
    from taut.watch.kept import live_state

    slow = LiveJob(64, 3, sees="hooks", gates=4, step_s=0.2, hiccups=0.0, fault="slow", since=60, strength=0.3, a_host=8)
    other = LiveJob(4, 5, sees="hooks", gates=4, step_s=0.2, hiccups=0.0)
    taut = [sys.executable, "-m", "taut", "watch"]
    env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off"}
    with tempfile.TemporaryDirectory() as folder:
        collect = [*taut, "collect", "--port", "0", "--gpu-hour", "2.50EUR", "--keep", folder]
        with subprocess.Popen(collect, stderr=subprocess.PIPE, text=True, env=env) as collector:
            try:
                assert collector.stderr is not None
                port = int(collector.stderr.readline().partition(", ")[0].rpartition(":")[2])
                with simulated(port, slow, "llm-70b"), simulated(port, other, "probe"):
                    while not ((told := live_state(Path(folder))) and any(job.regime and job.findings for job in told.jobs)):
                        time.sleep(1)
            finally:
                collector.kill()
    job = next(job for job in told.jobs if job.findings)
    terminal(render_top(told, job, Screen(80, styled=True, color=True), lines=24), PICTURES / "watch-top.png")


def terminal(text: str, path: Path) -> None:
    """What a terminal shows, as a picture."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=80, height=24, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    svg = console.export_svg(title="taut watch top")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1010, "height": 720})
        page.set_content(f"<style>body {{ margin: 0 }}</style>{svg}")
        page.locator("svg").screenshot(path=path)
        browser.close()


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
