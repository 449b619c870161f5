"""A run as one file in a browser, from disk: every page, what it does not hold, names that are hostile.

Needs chromium, playwright, and axe.min.js of npm's axe-core: ``npm install axe-core``, and its path in ``TAUT_AXE``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from decimal import Decimal
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import taut
from brief_payloads import PAYLOADS
from build import analyze, job
from taut.stored import open_run
from taut.views.frames import Frames

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(os.environ.get("TAUT_AXE", "node_modules/axe-core/axe.min.js"))
CHROMIUM = which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or not AXE.is_file() or find_spec("playwright") is None, reason="needs chromium, playwright and axe-core"
)
DRAWN = {
    "overview": ".headline", "timeline": ".timeline-where:not(:empty)", "structure": ".delay-number:not(:empty)",
    "whatif": ".answer:not(.stale) :is(.walls, .empty)", "scaling": ".empty", "bill": ".table", "decisions": ".form",
}  # fmt: skip
"""What every page has once it is drawn."""
PRICES = taut.Prices(gpu_hour=Decimal("2.5"), currency="EUR")
HANDLERS = ("onload", "onerror", "onmouseover", "ontoggle", "onclick")


class Opened:
    """A file in a browser, and all that it should not do."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.address, self.wrong = path.as_uri(), list[str]()
        context = browser.new_context(viewport={"width": 1280, "height": 720}, reduced_motion="reduce")
        self.page = context.new_page()
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.wrong.append(error.message))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda asked: self._asked(asked.url))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.address, "blob:", "data:")):
            self.wrong.append(f"asked for {url}")

    def show(self, view: str, query: str = "") -> Page:
        """A page, once it is drawn."""
        self.page.goto(f"{self.address}#{view}{query}")
        self.page.wait_for_selector(f"main.page-{view} {DRAWN[view]}")
        for unfinished in ("p.waiting", ".chart:empty"):
            self.page.wait_for_selector(unfinished, state="detached")
        return self.page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def named_run(folder: Path, names: Sequence[str]) -> Path:
    """A run of four ranks that meet once a step, whose ops have such names; one of them is slow in the second."""
    rows = []
    for step, rank in product(range(24), range(4)):
        at = 0.2 * step
        for k, name in enumerate(names):
            work = 1e-3 + 1e-6 * ((7 * step + rank) % 5) + 0.05 * (k == 1 and rank == 1 and step > 5)
            rows.append((rank, step, name, at, work))
            at += work
        rows.append((rank, step, "all_reduce", at, 0.2 * step + 0.15 - at))
    keys = ("rank", "step", "class", "start", "duration")
    pq.write_table(pa.Table.from_pylist([dict(zip(keys, row, strict=True)) for row in rows]), folder / "ops.parquet")
    return taut.analyze(folder / "ops.parquet", prices=PRICES).save(folder / "run")


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return taut.analyze(Path(taut.__path__[0]) / "demo", prices=PRICES).save(tmp_path_factory.mktemp("one") / "run")


@pytest.fixture(scope="module")
def file(incident: Path) -> Path:
    return written(incident)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = [text.replace("\ud800", "?") for text in PAYLOADS]
    return written(named_run(tmp_path_factory.mktemp("named"), names))


def written(run: Path) -> Path:
    """A run as a file beside it."""
    from taut.export import html

    path = run.with_name("taut.html")
    path.write_bytes(html(str(run)))
    return path


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[Opened]:
    one = Opened(browser, file)
    yield one
    one.page.context.close()


def violations(page: Page) -> list[str]:
    """What axe finds."""
    page.context.new_cdp_session(page).send("Page.setBypassCSP", {"enabled": True})
    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", DRAWN)
def test_every_page_is_drawn_asks_for_nothing_and_satisfies_axe(opened: Opened, view: str, theme: str) -> None:
    opened.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    page = opened.show(view)
    assert violations(page) == []
    assert opened.wrong == []


@pytest.mark.parametrize("view", DRAWN)
def test_names_are_text_on_every_page(browser: Browser, hostile: Path, view: str) -> None:
    one = Opened(browser, hostile)
    page = one.show(view)
    assert one.wrong == []
    count = "document.querySelectorAll({!r}).length"
    assert page.evaluate(count.format("main :is(script, img, iframe, math, style, body, object, embed)")) == 0
    assert page.evaluate(count.format(", ".join(f"[{name}]" for name in HANDLERS))) == 0
    if view in ("overview", "decisions"):
        assert PAYLOADS[1] in page.inner_text("main")
    page.context.close()


@pytest.mark.parametrize("view", ["overview", "timeline", "structure", "whatif"])
def test_steps_without_a_time_in_common_are_drawn(browser: Browser, tmp_path: Path, view: str) -> None:
    scripts = {rank: f"fwd {10 + 6 * (rank == 2)} | AR 2 | bwd 5 | AR 1" for rank in range(4)}
    one = Opened(browser, written(analyze(job(scripts, steps=12, relative=True)).save(tmp_path / "run")))
    one.show(view)
    assert one.wrong == []
    one.page.context.close()


def test_keys_lead_from_page_to_page(opened: Opened) -> None:
    page = opened.show("overview")
    for key, view in (
        ("2", "timeline"),
        ("3", "structure"),
        ("4", "whatif"),
        ("7", "bill"),
        ("8", "decisions"),
        ("1", "overview"),
    ):
        page.keyboard.press(key)
        page.wait_for_selector(f"main.page-{view} {DRAWN[view]}")
    page.go_back()
    page.wait_for_selector("main.page-decisions .form")
    assert "taut audit decide" in page.inner_text(".form .command code")
    assert page.locator("button[type=submit]").count() == 0
    assert opened.wrong == []


def test_frames_are_those_of_the_run(opened: Opened, incident: Path) -> None:
    page, frames = opened.show("timeline"), Frames(open_run(incident))
    step = frames.axis.steps()[30]
    asked = {"begin_ns": step.begin_ns, "end_ns": step.end_ns, "first_row": 2, "rows": 3, "columns": 64, "lines": 3}
    expected = frames.frame(**asked)
    found = page.evaluate("asked => taut.source.get('file', 'frame', asked)", asked)
    assert expected.ops is not None
    for key in expected.ops.__struct_fields__:
        if key != "name":
            assert found["ops"][key] == getattr(expected.ops, key), key
    assert [found["names"][k] for k in found["ops"]["name"]] == [expected.names[k] for k in expected.ops.name]
    whole = asked | {"begin_ns": 0, "end_ns": frames.axis.wall_ns, "first_row": 0, "rows": 8, "columns": 1024, "lines": 8}
    cells = page.evaluate("async asked => [...(await taut.source.get('file', 'frame', asked)).cells]", whole)
    assert bytes(cells) == frames.frame(**whole).cells


def test_a_wait_leads_to_its_cause_and_the_address_keeps_it(opened: Opened) -> None:
    page = opened.show("timeline", "?step=26")
    held = page.evaluate("async () => (await (await taut.source.timeline()).details()).keys().next().value")
    page = opened.show("timeline", f"?op={held}")
    page.wait_for_selector(".side-path")
    assert "Why it waited" in page.inner_text(".timeline-side")
    assert opened.wrong == []


def test_what_is_not_in_the_file_is_said_with_its_command(opened: Opened) -> None:
    page = opened.show("whatif", "?work=0.77")
    assert "--scale work=0.77" in page.inner_text(".page-whatif")
    page = opened.show("structure", "?rank=5&step=3&ms=7.5")
    page.wait_for_selector(".delay-command code")
    assert page.inner_text(".delay-command code").endswith("--delay rank=5,step=3,ms=7.5")
    page.select_option("select[aria-label='delays that this file holds']", "0")
    page.wait_for_selector(".delay-number strong")
    opened.show("timeline", "?op=0")
    page.wait_for_selector(".timeline-problem, .side-path")
    assert opened.wrong == []


def test_without_scripts_the_verdict_and_the_money_are_told(browser: Browser, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    said = page.inner_text("body")
    assert "Findings" in said
    assert "Rank 3 (node3) is slow" in said
    assert "jitter wait" in said
    assert "EUR" in said
    context.close()
