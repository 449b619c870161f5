"""The timeline and the structure of a run in a browser: keys, addresses, paths, delays, and names that are hostile.

Needs chromium, playwright, and axe.min.js of npm's axe-core: ``npm install axe-core``, and its path in ``TAUT_AXE``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from brief_payloads import PAYLOADS
from canvas_answers import MS, Job, Named, structure, wave
from taut.result.view_types import VIEWS, RunCard, RunList

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

AXE = Path(os.environ.get("TAUT_AXE", "node_modules/axe-core/axe.min.js"))
CHROMIUM = which("chromium")


def _playwright() -> bool:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return False
    return True


pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not AXE.is_file() or not _playwright(), reason="needs chromium, playwright and axe-core"
)
HOME = "http://taut.test"
NAMES = ["rank 0", "rank 1"]


class Pages:
    """Pages of the app over canned answers: nothing leaves the browser."""

    def __init__(self, browser: Browser, names: list[str], timeline: Job | Named) -> None:
        self.names, self.timeline = names, timeline
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.problems: list[str] = []
        self.refused: str | None = None
        """An answer that fails."""
        context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
        self.page = context.new_page()
        self.page.on("console", lambda said: self.problems.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.problems.append(error.message))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.route("**/*", self.answer)

    def open(self, view: str, query: str = "", theme: str = "light") -> Page:
        """A page, once it is drawn."""
        self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        self.page.goto(f"{HOME}/run/one/{view}{query}")
        self.page.wait_for_selector(".timeline-where:not(:empty)" if view == "timeline" else ".delay-number:not(:empty)")
        return self.page

    def answer(self, route: Route) -> None:
        """What a request is answered."""
        from taut.render.page import bundle
        from taut.serve.guard import CSP

        asked = urlsplit(route.request.url)
        if asked.path.startswith("/static/"):
            data, kind = bundle.static(asked.path.removeprefix("/static/"))
            route.fulfill(body=data, content_type=kind)
        elif asked.path.startswith("/api/"):
            self.told(route, asked.path.removeprefix("/api/runs").removeprefix("/one/"), dict(parse_qsl(asked.query)))
        else:
            policy = {"content-security-policy": CSP, "content-type": "text/html; charset=utf-8"}
            route.fulfill(body=bundle.shell("taut"), headers=policy)

    def told(self, route: Route, name: str, given: dict[str, str]) -> None:
        """An answer of the API."""
        self.asked.append((name, given))
        whole = {key: int(value) for key, value in given.items() if value.lstrip("-").isdigit()}
        answers: dict[str, Callable[[], object]] = {
            "": lambda: RunList(version="1", runs=[card()], refused=[]),
            "axis": self.timeline.axis,
            "frame": lambda: self.timeline.frame(whole),
            "op": lambda: self.timeline.op(whole),
            "structure": lambda: structure(self.names),
            "delay": lambda: wave(self.names, {key: float(value) for key, value in given.items()}),
        }
        if name == self.refused:
            route.fulfill(status=503, body=json.dumps({"error": "not enough memory"}), content_type="application/json")
            return
        found = msgspec.to_builtins(answers[name]())
        status = 404 if found is None else 200
        route.fulfill(status=status, body=json.dumps(found or {"error": "nothing is there"}), content_type="application/json")


def card() -> RunCard:
    """A run whose pages are all there."""
    return RunCard(
        id="one", name="one", folder="taut-runs/one", verb="analyze", views=list(VIEWS), verdict="", kind=None, regime=None,
        ranks=2, steps=6, step_ns=1e7, wall_ns=60 * MS, recoverable_share=None, effective_share=None, lost_per_hour=None,
        currency=None, made_ns=0, trend_ns=[],
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@cache
def small() -> Job:
    """The small job."""
    return Job()


@pytest.fixture
def pages(browser: Browser) -> Iterator[Pages]:
    """Pages of the small job; none may complain."""
    made = Pages(browser, NAMES, small())
    yield made
    made.page.context.close()
    assert made.problems == []


@pytest.fixture
def hostile(browser: Browser) -> Iterator[Pages]:
    """Pages of a job in which everything is called so that a page might obey."""
    made = Pages(browser, list(PAYLOADS), Named(PAYLOADS))
    yield made
    made.page.context.close()
    assert made.problems == []


def shown(page: Page) -> str:
    """Which part of the timeline is shown, in words."""
    return page.locator(".timeline-where").inner_text()


def params(page: Page, key: str) -> dict[str, str]:
    """The parameters of the address, once this one is there."""
    page.wait_for_url(lambda url: key in dict(parse_qsl(urlsplit(url).query)))
    return dict(parse_qsl(urlsplit(page.url).query))


def middle_of_wait(job: Job) -> tuple[int, int]:
    """(row, moment) in the middle of the last wait of rank 0."""
    axis = job.axis()
    frame = job.frame({"begin_ns": 0, "end_ns": axis.wall_ns, "first_row": 0, "rows": 2, "columns": 100, "lines": 2})
    assert frame.ops is not None
    ops = frame.ops
    at = max(k for k in range(len(ops.op)) if ops.row[k] == 0 and ops.opening_ns[k] > ops.begin_ns[k])
    return 0, (ops.begin_ns[at] + ops.opening_ns[at]) // 2


# ---------------------------------------------------------------------------------------------------------------------
# Timeline


def test_keys_zoom_and_move(pages: Pages) -> None:
    page, wall = pages.open("timeline"), small().axis().wall_ns
    assert shown(page) == "steps 0–5 · 60.0 ms · 2 ranks"
    page.locator(".timeline-over").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    found = params(page, "begin")
    assert int(found["end"]) - int(found["begin"]) == wall // 4
    assert shown(page).endswith("· 15.0 ms · 2 ranks")
    page.keyboard.press("End")
    page.wait_for_url(lambda url: f"end={wall}" in url)
    page.keyboard.press("-")
    page.keyboard.press("-")
    page.wait_for_url(lambda url: "begin" not in url)
    assert shown(page) == "steps 0–5 · 60.0 ms · 2 ranks"


def test_an_address_shows_the_same(pages: Pages) -> None:
    query = "?begin=10000000&end=30000000&first=1&rows=1&hide=host"
    page = pages.open("timeline", query)
    assert shown(page).endswith("· 20.0 ms · 1 of 2 ranks")
    assert page.get_by_role("button", name="host").get_attribute("aria-pressed") == "false"
    assert page.get_by_role("button", name="slow compute").get_attribute("aria-pressed") == "true"
    page.locator(".timeline-over").focus()
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_url(lambda url: "begin=12000000" in url)
    found = params(page, "begin")
    assert (found["end"], found["first"], found["rows"], found["hide"]) == ("32000000", "1", "1", "host")


def test_a_click_shows_the_path_back_to_the_cause(pages: Pages) -> None:
    row, at_ns = middle_of_wait(small())
    page = pages.open("timeline", f"?begin={at_ns - 2 * MS}&end={at_ns + 2 * MS}")
    page.locator(".timeline-over").focus()
    page.keyboard.press("ArrowUp")  # the cursor is in the middle: row 0 is above
    page.keyboard.press("Enter")
    found = small().op({"row": row, "at_ns": at_ns})
    assert found is not None
    assert found.root is not None
    assert params(page, "op")["op"] == str(found.op)
    items = page.locator(".side-path li")
    assert items.count() == len(found.path)
    root = page.locator(".side-path li.root")
    assert found.path[found.root].label in root.inner_text()
    assert found.path[found.root].rank == 1
    root.locator("button").click()  # shows it
    page.wait_for_function("() => document.getElementById('live').textContent.includes('rank 1')")
    page.keyboard.press("Escape")


def test_a_link_to_an_op_shows_its_path(pages: Pages) -> None:
    row, at_ns = middle_of_wait(small())
    found = small().op({"row": row, "at_ns": at_ns})
    assert found is not None
    page = pages.open("timeline", f"?op={found.op}")
    page.wait_for_selector(".side-path li.root")
    assert page.locator(".side-head h2").inner_text() == found.name


def test_a_filter_of_ranks(pages: Pages) -> None:
    page = pages.open("timeline")
    page.keyboard.press("/")
    page.keyboard.type("1")
    found = params(page, "ranks")
    assert (found["ranks"], found["first"], found["rows"]) == ("1", "1", "1")
    page.keyboard.press("Escape")
    page.wait_for_url(lambda url: "ranks" not in url and "rows" not in url)


def test_a_frame_that_fails_says_why_until_one_is_there(pages: Pages) -> None:
    with patch.object(small().frames, "ops_between", return_value=None):  # so that a nearer view needs another frame
        page = pages.open("timeline")
        pages.refused = "frame"
        page.locator(".timeline-over").focus()
        page.keyboard.press("+")
        page.wait_for_selector(".timeline-busy.bad")
        page.wait_for_timeout(100)
        assert page.locator(".timeline-busy").inner_text() == "not drawn: not enough memory"
        assert "not enough memory" in page.locator("#live").inner_text()
        pages.refused = None
        page.keyboard.press("-")
        page.wait_for_selector(".timeline-busy:not(.bad):empty", state="attached")
    pages.problems.clear()  # the browser's own line about the 503


def test_what_is_shown_as_a_table(pages: Pages) -> None:
    page = pages.open("timeline")
    page.get_by_text("What is shown, as a table").click()
    page.wait_for_selector(".timeline-table tbody tr")
    assert page.locator(".timeline-table tbody tr").count() == small().axis().ops


# ---------------------------------------------------------------------------------------------------------------------
# Structure


def test_the_number_of_a_delay_is_the_answers(pages: Pages) -> None:
    page = pages.open("structure", "?rank=0&step=2&ms=40")
    assert pages.asked[-1] == ("delay", {"rank": "0", "step": "2", "ms": "40"})
    told = wave(NAMES, {"rank": 0, "step": 2, "ms": 40})
    number = page.locator(".delay-number strong")
    assert number.get_attribute("data-ns") == str(-told.saved_wall_ns)
    assert number.inner_text() == "+28.0 ms"
    assert page.locator(".delay-command code").inner_text() == told.command
    assert page.locator(".absorbed li").count() == len(told.absorbed)


def test_a_delay_is_put_elsewhere(pages: Pages) -> None:
    page = pages.open("structure")
    page.locator(".component").first.click()
    assert params(page, "rank")["rank"] == "0"
    page.get_by_label("delay, milliseconds", exact=True).fill("7")
    page.keyboard.press("Tab")
    page.wait_for_selector(".delay-number strong[data-ns='4900000']")
    page.locator(".wave").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.getElementById('live').textContent.includes('would have waited anyway')")


# ---------------------------------------------------------------------------------------------------------------------
# Both

WITHOUT_POLICY = "() => axe.run(document, {resultTypes: ['violations']})"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("view", "query"), [("timeline", "?op=2"), ("structure", "")])
def test_axe_finds_nothing(pages: Pages, view: str, query: str, theme: str) -> None:
    page = pages.open(view, query, theme)
    page.wait_for_selector(".side-path" if view == "timeline" else ".absorbed li")
    page.evaluate(AXE.read_text("utf-8"))
    found: dict[str, Any] = page.evaluate(WITHOUT_POLICY)
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found["violations"]] == []


def test_names_are_text_on_the_timeline(hostile: Pages) -> None:
    page = hostile.open("timeline", "?op=0")
    page.wait_for_selector(".side-path li")
    page.get_by_text("What is shown, as a table").click()
    page.wait_for_selector(".timeline-table tbody tr")
    safe = [page.evaluate("(text) => taut.safe(text)", name) for name in PAYLOADS]
    assert page.locator(".side-path b").all_text_contents() == safe
    assert foreign(page) == 0


def test_names_are_text_in_the_structure(hostile: Pages) -> None:
    page = hostile.open("structure")
    page.wait_for_selector(".absorbed li")
    safe = [page.evaluate("(text) => taut.safe(text)", name) for name in PAYLOADS]
    assert page.locator(".part-name").all_text_contents() == safe
    page.locator(".wave").focus()
    page.keyboard.press("ArrowRight")
    assert foreign(page) == 0


def foreign(page: Page) -> int:
    """Elements that no script of ours makes."""
    found: int = page.evaluate(
        "() => document.querySelectorAll('body :is(script, img, iframe, style, form, math, object)').length"
    )
    return found


@pytest.mark.parametrize("view", ["timeline", "structure"])
def test_an_address_that_names_no_rank_of_the_run_says_so(pages: Pages, view: str) -> None:
    assert pages.open(view, "?rank=99&step=x").inner_text(".toast").startswith("This run has no ")
