"""The pages in a browser: drawn from made-up answers, judged by axe-core, walked by keys, obeyed by no name.

Needs playwright, chromium, and axe.min.js of npm's axe-core: ``npm install axe-core``,
``TAUT_AXE=node_modules/axe-core/axe.min.js``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from threading import Thread
from typing import TYPE_CHECKING

import msgspec
import pytest

from brief_payloads import PAYLOADS
from page_answers import answer
from taut.render.page import bundle
from taut.serve.guard import CSP

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

AXE = Path(os.environ.get("TAUT_AXE", "nowhere"))
CHROMIUM = which("chromium")
HERE = all(map(find_spec, ("playwright", "vl_convert", "jinja2")))
pytestmark = pytest.mark.skipif(
    not HERE or not AXE.is_file() or CHROMIUM is None,
    reason="needs chromium, playwright and axe-core (pip install playwright; npm install axe-core; TAUT_AXE is its axe.min.js)",
)
VIEWS = ("overview", "whatif", "scaling", "control", "bill", "decisions")
OF_RUNS = (*(f"/run/0/{view}" for view in VIEWS), "/run/1/overview", "/run/1/bill", "/run/gone/overview", "/run/0/nosuch")
PAGES = ("/", "/live", *OF_RUNS)
COUNT = "document.querySelectorAll('{}').length"
HANDLERS = ("onload", "onerror", "onmouseover", "ontoggle", "onclick")
HOSTILE = " ".join(PAYLOADS).encode("utf-8", "replace").decode()


def served(text: str) -> type[BaseHTTPRequestHandler]:
    """A server of the pages whose answers have ``text`` for all names."""

    class Served(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = self.path.split("?")[0].strip("/").split("/")
            if parts[0] == "static":
                self.send(*bundle.static(parts[1]))
            elif parts[0] == "api":
                self.send(msgspec.json.encode(answer(parts[-1], text, parts[-2])), "application/json")
            else:
                self.send(bundle.shell("taut").encode(), "text/html; charset=utf-8")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send(msgspec.json.encode(answer("decisions", text)), "application/json")

        def send(self, data: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Content-Security-Policy", CSP)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Served


@contextmanager
def serving(text: str) -> Iterator[str]:
    """The address of such a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), served(text)) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with serving("node 3") as address:
        yield address


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with serving(HOSTILE) as address:
        yield address


class Watched:
    """A page, and all that it should not do: errors, alerts, requests to elsewhere."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address, self.wrong = page, address, list[str]()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (self.wrong.append(f"alert: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._request(request.url))

    def open(self, path: str) -> None:
        self.page.goto(self.address + path)
        self.page.wait_for_selector("main h1:not(.unseen), main .table, main h1")
        for unfinished in ("p.waiting", ".chart:empty"):  # no function of a text: the policy of the page forbids it
            self.page.wait_for_selector(unfinished, state="detached")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(message.text)

    def _request(self, url: str) -> None:
        if not url.startswith((self.address, "blob:", "data:")):
            self.wrong.append(f"asked for {url}")


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Watched]:
    """A page of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light")
    yield Watched(context.new_page(), address)
    context.close()


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds, of any weight; by some rules or by all."""
    asked = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("asked => axe.run(document, asked)", asked)["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("path", PAGES)
def test_no_violation_by_day_and_by_night(browser: Browser, plain: str, path: str) -> None:
    with opened(browser, plain) as watched:
        watched.open(path)
        watched.page.context.new_cdp_session(watched.page).send("Page.setBypassCSP", {"enabled": True})
        watched.page.evaluate(AXE.read_text("utf-8"))
        assert violations(watched.page) == []
        watched.page.emulate_media(color_scheme="dark")
        assert violations(watched.page, "color-contrast") == []
        assert watched.wrong == []


@pytest.mark.parametrize("path", PAGES)
def test_names_are_text(browser: Browser, hostile: str, path: str) -> None:
    with opened(browser, hostile) as watched:
        watched.open(path)
        page = watched.page
        assert watched.wrong == []
        assert page.evaluate(COUNT.format("main :is(script, img, iframe, math, style, body, object, embed)")) == 0
        assert page.evaluate(COUNT.format(", ".join(f"[{name}]" for name in HANDLERS))) == 0
        assert page.evaluate("[...document.querySelectorAll('a')].every(a => a.protocol === location.protocol)")
        if path in ("/", "/run/0/overview"):
            assert "<script>alert(1)</script>" in page.inner_text("body")


def test_the_first_page_fits_without_scrolling(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/run/0/overview")
        size = watched.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        assert size == [1280, 720]


def test_keys_alone_lead_from_the_list_to_the_timeline_and_back(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/")
        page = watched.page
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('main a')"):
                break
        page.keyboard.press("Enter")
        page.wait_for_selector(".headline")
        page.keyboard.press("2")
        page.wait_for_url("**/run/0/timeline")
        page.go_back()
        page.wait_for_selector(".headline")
        page.keyboard.press("0")
        page.wait_for_url(plain + "/")


def test_arrow_keys_say_what_a_map_shows_and_enter_opens_it(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/run/0/overview")
        page = watched.page
        page.keyboard.press("Tab")
        page.focus("canvas.heat")
        page.keyboard.press("ArrowRight")
        assert "node 3, step 1" in page.inner_text("#live")
        page.keyboard.press("Enter")
        page.wait_for_url("**/run/0/timeline?rank=1&step=1")


def test_what_is_asked_stands_in_the_address(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/run/0/whatif?fix=rank%3D7&work=0.9")
        page = watched.page
        assert page.inner_text(".slider output >> nth=0") == "× 0.9"
        page.uncheck("label.choice:has-text('rank=7') input")
        page.wait_for_url("**/whatif?work=0.9")
        page.wait_for_selector(".answer:not(.stale)")
        assert page.inner_text(".command code") == "node 3"


def test_a_decision_is_sent_once_it_says_what_and_who(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/run/0/decisions?finding=node%203")
        page = watched.page
        page.fill("#do", "drain it")
        page.click("button[type=submit]")
        assert page.inner_text("[role=alert]") == "Say who decides."
        page.fill("#by", "ops")
        assert "--do 'drain it' --by ops" in page.inner_text(".form .command code")
        with page.expect_request("**/decide") as sent:
            page.click("button[type=submit]")
        assert sent.value.post_data_json == {"finding": "node 3", "do": "drain it", "by": "ops"}


def test_a_table_sorts_and_is_saved_without_formulas(browser: Browser, hostile: str, tmp_path: Path) -> None:
    with opened(browser, hostile) as watched:
        watched.open("/run/0/overview")
        page = watched.page
        page.click("th:has-text('late') button")
        assert page.get_attribute("th:has-text('late')", "aria-sort") == "ascending"
        csv = page.evaluate("taut.csv([{key: 'a', label: 'a'}], [{a: '=1+1'}, {a: '+2'}, {a: 'x,\"y'}, {a: -3}, {a: null}])")
        assert csv == 'a\r\n\'=1+1\r\n\'+2\r\n"x,""y"\r\n-3\r\n\r\n'


def test_a_file_shows_its_pages_and_asks_for_nothing(browser: Browser, tmp_path: Path) -> None:
    names = ("runs", "overview", "scaling", "control", "bill", "decisions")
    packed = {f"{name}.json": msgspec.json.encode(answer(name, HOSTILE)) for name in names}
    asked = {"questions": answer("questions", HOSTILE), "answers": {}, "work": [1], "bandwidth": [1], "left_out": 0}
    packed["answers.json"] = msgspec.json.encode(asked)
    (tmp_path / "job.html").write_text(bundle.file(HOSTILE, packed), "utf-8")
    with opened(browser, tmp_path.as_uri()) as watched:
        watched.open("/job.html")
        page = watched.page
        for key, view in enumerate(("overview", "whatif", "scaling", "control", "bill", "decisions")):
            page.keyboard.press("145678"[key])
            page.wait_for_selector(f"main.page-{view} :is(.card, .headline)")
        assert "A file records nothing" in page.inner_text("main")
        assert page.locator("text=Perfetto").count() == 0
        assert watched.wrong == []


GREEN = """() => {
  const canvas = document.querySelector(".chart canvas"), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let k = 0; k < pixels.length; k += 4) if (pixels[k] < 40 && pixels[k + 1] > 120 && pixels[k + 2] < 160 && pixels[k + 3] > 200) found += 1;
  return found;
}"""  # noqa: E501


def test_the_time_of_a_single_step_is_drawn(browser: Browser, plain: str) -> None:
    told = msgspec.to_builtins(answer("overview", "node 3"))
    told["step_times"] = {"step": [7], "observed_ns": [2_000_000], "ideal_ns": [1_000_000], "baseline_ns": None}
    with opened(browser, plain) as watched:
        watched.page.route(
            "**/overview", lambda route: route.fulfill(json=told) if "/api/" in route.request.url else route.continue_()
        )
        watched.open("/run/0/overview")
        assert watched.page.evaluate(GREEN) > 10  # the dot of the ideal step


def test_a_command_stands_only_where_something_is_asked(browser: Browser, plain: str) -> None:
    """taut whatif without a change is refused."""
    with opened(browser, plain) as watched:
        watched.open("/run/0/whatif")
        watched.page.wait_for_selector(".answer:not(.stale) .walls")
        assert watched.page.evaluate(COUNT.format(".asking .command")) == 0


def test_paper_is_light_and_the_screen_as_before(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/")
        theme = "document.documentElement.dataset.theme"
        watched.page.click("#theme")
        watched.page.click("#theme")
        watched.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert watched.page.evaluate(theme) == "light"
        watched.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert watched.page.evaluate(theme) == "dark"


def test_a_range_that_begins_below_nothing_has_no_dash(browser: Browser, plain: str) -> None:
    with opened(browser, plain) as watched:
        watched.open("/")
        words = "taut.interval({{value: 0, lo: {}, hi: 0.05}}, (v) => taut.percent(v))"
        assert [watched.page.evaluate(words.format(lo)) for lo in (-0.02, 0.02)] == ["-2.0 to 5.0 %", "2.0–5.0 %"]
