"""Runs one case as a user would, and says what is wrong with the outcome: nothing, or a finding.

Refusals (errors of taut's own tree, usage errors of the command line) are right outcomes. Whatever was accepted must keep
the laws: the ledger sums exactly to ranks × wall, an unchanged replay is exact, no number in the JSON is NaN or infinite,
no count is negative.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

FOLDER = "job"
"""Where the files of a case lie, so that its path is short and the same for all."""
SAVED = 16
"""Of so many accepted cases one is also saved, opened again and shown."""


@dataclass
class Case:
    """Files of a folder, and what else a target needs to be asked."""

    files: dict[str, bytes]
    args: list[str] = field(default_factory=list)
    number: int = 0


@dataclass
class Finding:
    """Something that must not happen."""

    kind: str
    """exception, law, hang, crash, memory."""
    site: str
    """File and line inside taut, and the type of the exception; or the law that is broken."""
    text: str = ""
    seen: str = ""
    """What a user sees of it: refused, or the same."""


class BrokenLaw(Exception):
    """An accepted case whose result cannot be true."""


Judge = Callable[[Path, Case], str]
"""Runs a case whose files lie in a folder; returns what became of it (accepted, refused …), or raises."""


def judged(judge: Judge, case: Case, root: Path) -> tuple[str, Finding | None]:
    """What became of a case, and what is wrong with that."""
    outcome, finding = _once(judge, case, root, debug=True)
    if finding is not None and finding.kind == "exception":
        _, again = _once(judge, case, root, debug=False)
        finding.seen = "refused" if again is None else "the same"
    return outcome, finding


def _once(judge: Judge, case: Case, root: Path, debug: bool) -> tuple[str, Finding | None]:
    from taut.core.errors import TautError

    with _laid_out(case, root), _debug(debug):
        try:
            return judge(root, case), None
        except TautError:
            return "refused", None
        except BrokenLaw as law:
            return "accepted", Finding("law", str(law).split(":")[0], str(law))
        except MemoryError as error:
            return "failed", Finding("memory", site(error), "".join(traceback.format_exception(error)))
        except Exception as error:
            return "failed", Finding("exception", site(error), "".join(traceback.format_exception(error)))


def site(error: BaseException) -> str:
    """Where an exception came out of taut: the innermost line of it, and the type."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/taut/" in f.filename and "/bench/" not in f.filename]
    if not frames:
        frames = traceback.extract_tb(error.__traceback__)[-1:]
    name = frames[-1].filename.rpartition("/taut/")[2] if frames else "?"
    return f"{name}:{frames[-1].lineno if frames else 0} {type(error).__name__}"


@contextlib.contextmanager
def _laid_out(case: Case, root: Path) -> Iterator[None]:
    """The files of a case on disk, and nothing else there."""
    home = root / FOLDER
    shutil.rmtree(root, ignore_errors=True)
    home.mkdir(parents=True)
    for name, data in case.files.items():
        path = home / name
        if "/" in name:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    here = Path.cwd()
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(here)


@contextlib.contextmanager
def _debug(on: bool) -> Iterator[None]:
    """With it, exceptions that taut would turn into refusals come out as they are."""
    os.environ.pop("TAUT_DEBUG", None)
    if on:
        os.environ["TAUT_DEBUG"] = "1"
    try:
        yield
    finally:
        os.environ.pop("TAUT_DEBUG", None)


# how a case is asked


def analyze(root: Path, case: Case) -> str:
    """``taut analyze`` on the folder, through the library; some are also saved, opened again and shown."""
    from taut.run import analyze as run

    analysis = run([FOLDER])
    check(analysis.result, json.loads(analysis.to_json(), parse_constant=_no_constant))
    if case.number % SAVED == 0:
        _kept(analysis, root)
    return "accepted"


def beside(root: Path, case: Case) -> str:
    """What lies beside a trace that is not changed: always read, and every third case analyzed."""
    from taut.read.trace import read

    if case.number % 3 == 0:
        return analyze(root, case)
    read([FOLDER])
    return "accepted"


def _kept(analysis: Any, root: Path) -> None:
    from taut.render.analysis_screen import render
    from taut.render.terminal import Screen
    from taut.run import open_run

    folder = analysis.save(root / "run")
    render(analysis.result, Screen())
    if analysis.result["ledger"] is not None:
        open_run(folder)


def control(root: Path, case: Case) -> str:
    """``taut control`` on the folder, through the library."""
    from taut.control.relations import control as relate
    from taut.core.errors import NotATrace
    from taut.read.trace import read
    from taut.render.control_screen import render_control
    from taut.render.terminal import Screen

    trace = read([FOLDER])
    if not len(trace.actions) and not len(trace.attempts) and "calls" not in trace.counts:
        raise NotATrace(trace.source, "nobody decides anything here")
    result = relate(trace, seed=0)
    finite(msgspec.to_builtins(result))
    if case.number % SAVED == 0:
        render_control(result, Screen())
    return "accepted"


def both(root: Path, case: Case) -> str:
    """Job logs: ``taut analyze`` and, for half of them, ``taut control``; accepted if one of them accepts."""
    from taut.core.errors import TautError

    outcomes = []
    for ask in (analyze, control)[: 1 + (case.number % 2 == 0)]:
        try:
            outcomes.append(ask(root, case))
        except TautError:
            outcomes.append("refused")
    return min(outcomes)


def command(root: Path, case: Case) -> str:
    """A command line; files are named as in the folder."""
    from click.testing import CliRunner

    from taut.cli import main

    result = CliRunner().invoke(main, case.args, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if "TAUT_DEBUG=1" in result.stderr:
        raise BrokenLaw(f"an exception as a line: {result.stderr[:300]}")
    if result.exit_code not in (0, 1, 2, 3, 4):
        raise BrokenLaw(f"exit code {result.exit_code}: {' '.join(case.args)}")
    if result.exit_code == 0 and "--json" in case.args:
        finite(json.loads(result.stdout, parse_constant=_no_constant))
    if result.exit_code in (1, 2, 4) and result.stderr.count("\n") > 1:
        raise BrokenLaw(f"more than one line on stderr: {result.stderr[:300]}")
    return "accepted" if result.exit_code in (0, 3) else "refused"


# laws


def _no_constant(word: str) -> None:
    raise BrokenLaw(f"{word} in the JSON")


def check(found: Any, shown: Any) -> None:
    """The laws of a result of ``analyze``."""
    finite(shown)
    result = msgspec.to_builtins(found)
    job = result["job"] or {}
    counts = {**job.get("counts", {}), **{key: job.get(key) for key in ("ranks", "steps", "ops", "edges", "gates", "wall_ns")}}
    for key, value in counts.items():
        if isinstance(value, (int, float)) and value < 0:
            raise BrokenLaw(f"negative count: {key} = {value}")
    for name in ("ledger", "attempts"):
        _closes(name, result[name])
    fidelity = result["fidelity"]
    if fidelity is not None and fidelity["replay_error"] != 0:
        raise BrokenLaw(f"the replay is not exact: {fidelity['replay_error']}")


def _closes(name: str, ledger: Mapping[str, Any] | None) -> None:
    """The entries of a ledger are never negative and sum to its total, and it says so."""
    if ledger is None or ledger["total_rank_ns"] is None:
        return
    total = sum(entry["rank_ns"] for entry in ledger["entries"])
    if not ledger["closes"] or total != ledger["total_rank_ns"]:
        raise BrokenLaw(f"{name} does not close: {total} of {ledger['total_rank_ns']}")
    if ledger["total_rank_ns"] < 0 or any(entry["rank_ns"] < 0 for entry in ledger["entries"]):
        raise BrokenLaw(f"{name} with negative rank time: {ledger['total_rank_ns']}")


def finite(tree: Any) -> None:
    """No number is NaN or infinite."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            waiting += node.values()
        elif isinstance(node, (list, tuple)):
            waiting += node
        elif isinstance(node, float) and (node != node or node in (float("inf"), float("-inf"))):
            raise BrokenLaw("NaN or infinity in the result")
