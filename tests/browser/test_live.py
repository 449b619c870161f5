"""The live page in a browser: it keeps itself up to date, can be paused, and says when nothing is written any more.

Needs chromium, playwright, and axe.min.js of npm's axe-core: ``npm install axe-core``, and its path in ``TAUT_AXE``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import pytest
from msgspec.structs import replace

from page_answers import answer
from taut.result.view_types import LiveFolder, LiveView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

AXE = Path(os.environ.get("TAUT_AXE", "node_modules/axe-core/axe.min.js"))
CHROMIUM = which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not AXE.is_file() or not find_spec("playwright"), reason="needs chromium, playwright and axe-core"
)
HOME = "http://taut.test"
NOW = 1_800_000_000_000_000_000


class Told:
    """What the server answers, which tests change."""

    def __init__(self) -> None:
        made = answer("live", "node 3")
        assert isinstance(made, LiveView)
        self.view, self.asked, self.gone = replace(made, folders=[self.folder(made.folders[0])]), 0, False

    def folder(self, one: LiveFolder) -> LiveFolder:
        jobs = [
            replace(job, watched=replace(job.watched, job=f"job-{i}", verdict=f"verdict {i}")) for i, job in enumerate(one.jobs)
        ]
        return replace(one, old=False, at_ns=NOW, jobs=jobs)

    def change(self, **about: object) -> None:
        self.view = replace(self.view, folders=[replace(self.view.folders[0], **about)])

    def say(self, verdict: str) -> None:
        first, *others = self.view.folders[0].jobs
        self.change(jobs=[replace(first, watched=replace(first.watched, verdict=verdict)), *others])

    def answer(self, route: Route) -> None:
        """What a request is answered."""
        from taut.render.page import bundle
        from taut.serve.guard import CSP

        first, *rest = urlsplit(route.request.url).path.strip("/").split("/")
        headers = {"content-security-policy": CSP}
        if first == "static":
            data, kind = (b"", "text/javascript") if rest == ["vega.js"] else bundle.static(rest[0])
            route.fulfill(body=data, content_type=kind, headers=headers)
        elif first != "api":
            route.fulfill(body=bundle.shell("taut"), content_type="text/html", headers=headers)
        elif rest == ["live"] and self.gone:
            route.abort()
        else:
            self.asked += rest == ["live"]
            told = self.view if rest == ["live"] else answer(rest[-1], "node 3")
            route.fulfill(body=msgspec.json.encode(told), content_type="application/json", headers=headers)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def told() -> Told:
    return Told()


@contextmanager
def shown(browser: Browser, told: Told, path: str = "/live") -> Iterator[Page]:
    """The live page over what is told, with a clock that stands still."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    page, wrong = context.new_page(), list[str]()
    page.on("pageerror", lambda error: wrong.append(error.message))
    page.clock.install()
    page.route("**/*", told.answer)
    page.goto(HOME + path)
    page.wait_for_selector("main h1:has-text('Live'), main .table", state="attached")
    page.wait_for_selector("p.waiting", state="detached")
    yield page
    context.close()
    assert wrong == []


def test_it_fits_and_shows_what_is_open(browser: Browser, told: Told) -> None:
    with shown(browser, told) as page:
        size = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        assert size == [1280, 720]
        assert "verdict 0" in page.inner_text(".headline")
        text = page.inner_text(".findings")
        assert "since\nstep 1, found 1 step later" in text
        assert "12.50 node 3 an hour" in text
        assert "not seen\nnode 3" in text


def test_it_keeps_itself_up_to_date_and_says_what_changed(browser: Browser, told: Told) -> None:
    with shown(browser, told) as page:
        told.say("rank 7 is slow")
        page.clock.run_for(2_500)
        page.wait_for_selector(".headline h2:has-text('rank 7 is slow')")
        assert page.inner_text("#live") == "job-0: rank 7 is slow"


def test_it_asks_nothing_while_it_is_paused_or_hidden(browser: Browser, told: Told) -> None:
    with shown(browser, told) as page:
        page.click("button:has-text('pause')")
        before = told.asked
        page.clock.run_for(20_000)
        assert told.asked == before
        assert "paused" in page.inner_text(".head-line")
        page.click("button:has-text('pause')")
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        page.wait_for_load_state("networkidle")
        before = told.asked
        page.clock.run_for(20_000)
        assert told.asked == before
        told.say("seen again")
        page.evaluate("(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')))")
        page.wait_for_selector(".headline h2:has-text('seen again')")


def test_keys_choose_a_job_which_stays_chosen_and_focused(browser: Browser, told: Told) -> None:
    with shown(browser, told, "/") as page:
        page.keyboard.press("9")
        page.wait_for_url("**/live")
        page.focus(".job >> nth=1")
        page.keyboard.press("Enter")
        page.wait_for_url("**/live?job=job-1")
        told.say("another verdict")
        page.clock.run_for(2_500)
        page.wait_for_selector(".job[aria-pressed=true]:has-text('job-1')")
        assert "verdict 1" in page.inner_text(".headline")
        assert page.evaluate("document.activeElement.dataset.key") == "job-1"
        page.keyboard.press("0")
        page.wait_for_url(HOME + "/")


def test_an_old_file_says_since_when(browser: Browser, told: Told) -> None:
    told.change(old=True)
    with shown(browser, told) as page:
        assert "nothing has been written since 2027-01-15 08:00 UTC" in page.inner_text(".empty >> nth=0")


def test_a_server_that_is_gone_is_said(browser: Browser, told: Told) -> None:
    with shown(browser, told) as page:
        told.gone = True
        page.clock.run_for(2_500)
        page.wait_for_selector(".head-line :text('does not answer; what is shown was seen at 08:00:00 UTC')")


def test_without_a_collector_it_says_how_to_start_one(browser: Browser, told: Told) -> None:
    told.view = replace(told.view, folders=[])
    with shown(browser, told) as page:
        text = page.inner_text("main")
        assert "No job is watched here" in text
        assert "taut watch collect" in text
        assert "import taut.watch; taut.watch.start()" in text
