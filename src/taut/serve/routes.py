"""Every address that is answered: method, path, what it takes, what it answers. What is not in ``ROUTES`` is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from taut.core.errors import UsageError
from taut.result.types import Part
from taut.result.view_types import ANSWERS, VIEWS, NewDecision
from taut.serve.live_folders import LiveFolders
from taut.serve.opened import REPLAYS, OpenRun, OpenRuns
from taut.serve.parameters import Asked, Parameter
from taut.serve.refusals import JSON, Refused, encoded
from taut.serve.static_files import static_file

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

MOST_COLUMNS, MOST_LINES = 4096, 2048
"""Pixels of a frame."""
MOST_FIXES, MOST_MS = 512, 1e9


@dataclass(frozen=True)
class House:
    """What handlers work with."""

    runs: OpenRuns
    log: Path | None = None
    """The audit log, where one was given; else that beside each run."""

    @cached_property
    def live(self) -> LiveFolders:
        """What collectors keep in the same folders."""
        return LiveFolders(self.runs.catalogue)


@dataclass(frozen=True)
class Call:
    """A request that was let in, its query read."""

    house: House
    request: Request
    asked: Asked

    @property
    def run(self) -> str:
        """The id in the path."""
        return str(self.request.path_params["run"])

    async def ask(self, work: Callable[[OpenRun], bytes], apart: str = "", long: bool = False) -> Response:
        """JSON that is made of a run."""
        return json_response(await self.house.runs.ask(self.run, work, self.request.is_disconnected, apart, long))

    async def kept(self, name: str, make: Callable[[OpenRun], Part], opens: bool = True, apart: str = "") -> Response:
        """JSON that is made of a run once, beside what others ask of it: timelines go on while it is made."""
        known = await self.house.runs.known(self.run, name)
        if known is not None:
            return json_response(known)
        if opens:
            await self.house.runs.ask(self.run, lambda of: of.run, self.request.is_disconnected)
        return await self.ask(lambda of: of.kept(name, lambda: make(of)), apart or name, long=True)


Handler = Callable[[Call], Awaitable["Response"]]


@dataclass(frozen=True)
class Route:
    """One address."""

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    meaning: str
    takes: tuple[Parameter, ...] = ()
    answers: type[Part] | None = None
    """What its JSON is; None of pages, files and the description itself."""
    body: type[Part] | None = None


def json_response(data: bytes) -> Response:
    """An answer."""
    from starlette.responses import Response

    return Response(data, media_type=JSON)


# ---------------------------------------------------------------------------------------------------------------------
# Pages


async def shell(call: Call) -> Response:
    """The page that scripts fill; the same for all views."""
    from starlette.responses import HTMLResponse

    from taut.render.page.bundle import shell as page

    return HTMLResponse(page("taut"))


async def view(call: Call) -> Response:
    """The same for a view of a run that is there."""
    if call.request.path_params["view"] not in VIEWS:
        raise Refused(404, "no such page")
    await call.house.runs.listed(lambda: call.house.runs.catalogue.place(call.run))
    return await shell(call)


async def static(call: Call) -> Response:
    """A script, a style or the icon."""
    from starlette.responses import Response

    name = str(call.request.path_params["name"])
    try:
        data, kind = await asyncio.to_thread(static_file, name)
    except KeyError:
        raise Refused(404, "no such file") from None
    return Response(data, headers={"content-type": kind})


async def description(call: Call) -> Response:
    """OpenAPI of all this."""
    from taut.serve.openapi import openapi

    return json_response(encoded(openapi(ROUTES)))


# ---------------------------------------------------------------------------------------------------------------------
# Runs


async def runs(call: Call) -> Response:
    """The list of runs."""
    return json_response(await call.house.runs.list_sent())


async def live(call: Call) -> Response:
    """Jobs that run."""
    return json_response(await call.house.runs.listed(call.house.live.sent))


async def overview(call: Call) -> Response:
    """The first page."""
    from taut.views import overview as made
    from taut.views.decision_loop import decided

    card = await call.house.runs.listed(lambda: call.house.runs.catalogue.card(call.run))
    if "timeline" not in card.views:
        return await call.kept("overview", lambda of: made.overview_of(of.place.folder), opens=False)
    done = await call.house.runs.listed(lambda: decided(card.folder, call.house.log))
    name = f"overview {len(card.trend_ns)} {sorted(done.items())}"
    found = await call.kept(name, lambda of: made.with_decided(made.overview(of.run, card), done))
    call.house.runs.prepare(call.run)
    return found


async def axis(call: Call) -> Response:
    """Steps and rows of the timeline."""
    return await call.ask(lambda of: of.kept("axis", lambda: of.frames.axis.described(of.run.result.findings)))


async def frame(call: Call) -> Response:
    """A part of the timeline."""
    asked = call.asked
    begin, end, first, rows, columns, lines = (
        asked.whole(name) for name in ("begin_ns", "end_ns", "first_row", "rows", "columns", "lines")
    )
    return await call.ask(lambda of: encoded(of.frames.frame(begin, end, first, rows, columns, lines)))


async def op(call: Call) -> Response:
    """One op, and what it hangs on."""
    number, row, at_ns, lane = call.asked.wholes("op", "row", "at_ns", "lane")
    if (number is None) == (row is None) or (row is None) != (at_ns is None):
        raise UsageError("give op, or row and at_ns")

    def made(of: OpenRun) -> bytes:
        found = of.ops.by_number(number) if number is not None else of.ops.at(row or 0, at_ns or 0, lane)
        if found is None:
            raise Refused(404, "nothing is there")
        return encoded(found)

    return await call.ask(made)


async def structure(call: Call) -> Response:
    """Parts and the operator graph."""
    from taut.views.structure import structure as made

    return await call.kept("structure", lambda of: made(of.run))


async def delay(call: Call) -> Response:
    """A delay on its way."""
    rank, step, ms = call.asked.whole("rank"), call.asked.whole("step"), call.asked.real("ms")
    (number,) = call.asked.wholes("op")
    from taut.views.delay_wave import delay_wave

    return await call.ask(lambda of: encoded(delay_wave(of.run, rank, step, round(ms * 1e6), number)))


async def questions(call: Call) -> Response:
    """What can be changed."""
    from taut.views.run_questions import questions as made

    return await call.kept("questions", lambda of: made(of.replays), apart=REPLAYS)


async def whatif(call: Call) -> Response:
    """What a change gives."""
    from taut.views.run_questions import answer, question

    asked = call.asked
    scales = {name: repr(asked.real(name)) for name in ("work", "bandwidth", "gaps") if name in asked}
    put = question(asked.texts("fix"), asked.texts("policy"), scales)
    return await call.ask(lambda of: encoded(answer(of.replays, put)), REPLAYS, long=True)


async def scaling(call: Call) -> Response:
    """What more ranks bring."""
    from taut.views.scaling import scaling as made

    return await call.kept("scaling", lambda of: made(of.place.folder), opens=False)


async def control(call: Call) -> Response:
    """Controllers."""
    from taut.views.control_view import control_view

    card = await call.house.runs.listed(lambda: call.house.runs.catalogue.card(call.run))
    traced = "timeline" in card.views
    return await call.kept("control", lambda of: control_view(of.place.folder, of.run if traced else None), opens=traced)


async def bill(call: Call) -> Response:
    """A bill."""
    from taut.views.bill_view import bill_view

    return await call.kept("bill", lambda of: bill_view(of.place.folder), opens=False)


async def decisions(call: Call) -> Response:
    """What was decided on a run."""
    from taut.views.decision_loop import decisions as made

    return await call.ask(lambda of: encoded(made(of.place.folder, call.house.log)), "decisions")


async def decide(call: Call) -> Response:
    """Record a decision, and answer with all of them."""
    from taut.views.decision_loop import decide as record
    from taut.views.decision_loop import decisions as made

    try:
        new = msgspec.json.decode(await call.request.body(), type=NewDecision)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"no decision: {error}") from None

    def done(of: OpenRun) -> bytes:
        record(of.place.folder, new, call.house.log)
        return encoded(made(of.place.folder, call.house.log))

    return json_response(await call.house.runs.ask(call.run, done, apart="decisions"))


async def perfetto(call: Call) -> Response:
    """The trace that ui.perfetto.dev opens."""
    from taut.serve.trace_file import trace_response

    return await trace_response(call.house.runs, call.run)


# ---------------------------------------------------------------------------------------------------------------------
# All of them


def _whole(name: str, meaning: str, least: int, most: int = 2**62, default: int | None = None) -> Parameter:
    return Parameter(name, "whole", meaning, least, most, required=default is None, default=default)


FRAME = (
    _whole("begin_ns", "begin on the axis, ns", 0, 2**60),
    _whole("end_ns", "end on the axis, ns", 1, 2**60),
    _whole("first_row", "first row of the axis", 0, 2**31, default=0),
    _whole("rows", "rows of the axis", 1, 2**31),
    _whole("columns", "pixels across", 1, MOST_COLUMNS),
    _whole("lines", "pixels down", 1, MOST_LINES),
    _whole("lanes", "1 where lanes are shown apart: their ops are the same", 0, 1, default=0),
)
OP = (
    Parameter("op", "whole", "number of an op", 0, 2**40),
    Parameter("row", "whole", "row of the axis", 0, 2**31),
    Parameter("at_ns", "whole", "time on the axis, ns", 0, 2**60),
    Parameter("lane", "whole", "with row: place in the lanes of the row", 0, 2**31),
)
DELAY = (
    _whole("rank", "rank that is delayed", 0, 2**31),
    _whole("step", "step in which it is", 0, 2**40),
    Parameter("ms", "real", "by how much, milliseconds", 0, MOST_MS, required=True),
    Parameter("op", "whole", "op that is delayed; else the first of the rank in the step", 0, 2**40),
)
WHATIF = (
    Parameter("fix", "texts", "KEY=VALUE as taut whatif --fix takes it; may be repeated", 0, MOST_FIXES),
    Parameter("policy", "texts", "NAME[=VALUE] as --policy takes it; may be repeated", 0, 8),
    Parameter("work", "real", "all compute, times this", 1e-3, 1000),
    Parameter("bandwidth", "real", "bandwidth of all transfers, times this", 1e-3, 1000),
    Parameter("gaps", "real", "all gaps, times this", 0, 1000),
)


def _of_run(name: str, handler: Handler, meaning: str, takes: tuple[Parameter, ...] = ()) -> Route:
    return Route("GET", f"/api/runs/{{run}}/{name}", handler, meaning, takes, ANSWERS[name])


ROUTES: tuple[Route, ...] = (
    Route("GET", "/", shell, "the list of runs, as a page"),
    Route("GET", "/live", shell, "jobs that run, as a page; its parameters are of the page's own"),
    Route("GET", "/run/{run}/{view}", view, "a view of a run, as a page; its parameters are of the page's own"),
    Route("GET", "/static/{name}", static, "scripts, style and icon of the pages"),
    Route("GET", "/api/openapi.json", description, "this description"),
    Route("GET", "/api/runs", runs, "the runs that are served, the newest first", answers=ANSWERS["runs"]),
    Route("GET", "/api/live", live, "jobs that run, as collectors see them now", answers=ANSWERS["live"]),
    _of_run("overview", overview, "the first page of a run"),
    _of_run("axis", axis, "steps and rows of its timeline"),
    _of_run("frame", frame, "a part of its timeline, as finely as it can be shown", FRAME),
    _of_run("op", op, "one op, and the path to its root cause: by its number, or by row and time", OP),
    _of_run("structure", structure, "its parts, and its operator graph"),
    _of_run("delay", delay, "a delay on its way over the graph", DELAY),
    _of_run("questions", questions, "what can be asked of it"),
    _of_run("whatif", whatif, "what a change gives", WHATIF),
    _of_run("scaling", scaling, "what more ranks bring"),
    _of_run("control", control, "its controllers"),
    _of_run("bill", bill, "its bill"),
    _of_run("decisions", decisions, "what was decided on it, and whether the log proves it"),
    Route("GET", "/api/runs/{run}/perfetto", perfetto, "its trace for ui.perfetto.dev"),
    Route("POST", "/api/runs/{run}/decide", decide, "record a decision", (), ANSWERS["decisions"], NewDecision),
)
PAGES: Mapping[str, bool] = {route.path: route.path in ("/", "/live", "/run/{run}/{view}") for route in ROUTES}
"""Path → whether it is a page: a page's query belongs to its scripts."""
