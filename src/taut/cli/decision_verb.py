"""``taut audit decide`` and ``taut audit outcome``: what is done about a finding, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut import __version__
from taut.cli.audit_verb import audit, json_option, quiet_option, where_option
from taut.cli.common import print_object, say, show
from taut.cli.recording import log_path
from taut.core.errors import UsageError

if TYPE_CHECKING:
    from taut.audit.outcome import Expectation
    from taut.audit.record import Detail
    from taut.result.decided_saving import Measured
    from taut.result.types import AuditOutcome, Estimate

__all__ = ["audit"]
EXPECTED = re.compile(r"(-?[0-9]{1,3}(?:\.[0-9]{1,6})?)\s?%?(?:\s?(?:±|\+-|\+/-)\s?([0-9]{1,3}(?:\.[0-9]{1,6})?)\s?%?)?")


@audit.command(short_help="Record a decision on a finding.")
@click.argument("run", metavar="RUN", type=click.Path())
@click.option("--finding", metavar="ID", required=True, help="The finding that it answers.")
@click.option("--do", "action", metavar="TEXT", required=True, help="What is to be done.")
@click.option("--because", metavar="TEXT", default="", help="Why.")
@click.option(
    "--expect",
    metavar="SHARE",
    help="Saving of step time, such as '28 % ± 5'  [default: what the finding says, and how far such were off in the lab]",
)
@click.option("--by", metavar="NAME", required=True, help="Who decides.")
@where_option
@quiet_option
def decide(run: str, finding: str, action: str, because: str, expect: str | None, by: str, quiet: bool) -> None:
    """Record what was decided on a finding, by whom, and what it is expected to save.

    \b
      taut audit decide taut-runs/job-1a2b3c4d --finding slow-link-1 --do "replace the NIC of gpu-17" \\
          --because "third time this month" --expect "28 % ± 5" --by "on-call"
    """
    from taut.briefing.deciding import Chosen, record_decision
    from taut.render.audit_screen import saving
    from taut.run import open_run

    given = None if expect is None else _expected(expect)
    chosen = Chosen(finding, action, by, because, given)
    decided = record_decision(log_path(click.get_current_context()), run, open_run(run).result, chosen)
    index = decided.index
    click.echo(index)
    if not quiet:
        say(f"decided: record {index}, expected to save {saving(decided.expected)} of the step time")
        say(f"next: once it is done, analyze the job again, then: taut audit outcome {index} RUN")


def _expected(text: str) -> Estimate:
    """``28 % ± 5`` → a share with its ends."""
    from taut.result.types import Estimate

    found = EXPECTED.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--expect {text!r}: give a share of the step time in percent, such as '28 % ± 5'")
    value, around = float(found[1]) / 100, None if found[2] is None else float(found[2]) / 100
    return Estimate(value=value) if around is None else Estimate(value=value, lo=value - around, hi=value + around)


@audit.command(short_help="Record what came of a decision, measured.")
@click.argument("decision", metavar="DECISION", type=click.IntRange(min=0))
@click.argument("runs", metavar="RUN...", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--before",
    metavar="RUN",
    type=click.Path(),
    multiple=True,
    help="Another run from before it; may be repeated. Also the one that was decided on, where it was moved.",
)
@where_option
@json_option
@quiet_option
def outcome(decision: int, runs: tuple[str, ...], before: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Measure what came of a decision, in runs of the same job from after it, against what was expected.

    DECISION is the number of its record, RUN a later run; several tell how much runs differ from each other, and more is
    told by two or three than by one. Runs that are not of the same job are refused.
    """
    from msgspec.structs import replace

    from taut.audit.log import open_log
    from taut.audit.outcome import expectation
    from taut.audit.record import OUTCOME
    from taut.briefing.deciding import plain
    from taut.render.audit_screen import render_outcome

    with open_log(log_path(click.get_current_context()), __version__) as log:
        decided = expectation(log.entry(decision))
        sides = _sides(decision, decided, before, runs)
        result = _held(decision, decided, _measured(*sides), *map(len, sides))
        details: dict[str, Detail] = {
            "decision": decision, "before": _named(sides[0]), "after": _named(sides[1]), "says": result.says,
            "measured": plain(result.measured_saving), "expected": plain(result.expected_saving),
            "run_spread": result.run_spread, "run_spread_from": result.run_spread_from,
        }  # fmt: skip
        result = replace(result, record=log.append(OUTCOME, details).index)
    print_object(result) if as_json else show(render_outcome, result)
    if not quiet:
        say(f"next: taut audit why {result.record}")


Side = dict[str, str]
"""Runs before, or after: where they lie, by their digests."""


def _sides(number: int, decided: Expectation, before: Sequence[str], after: Sequence[str]) -> tuple[Side, Side]:
    """Runs from before and after a decision; refused where one counts twice, or the one decided on is not there."""
    from taut.core.folder import RUN, is_run_folder, sealed

    places = [*before]
    if decided.place is not None and is_run_folder(Path(decided.place)) and sealed(Path(decided.place))[RUN] == decided.run:
        places.insert(0, decided.place)
    sides: tuple[Side, Side] = {}, {}
    for side, some in zip(sides, (places, after), strict=True):
        for place in some:
            if not is_run_folder(Path(place)):
                raise UsageError(f"{place}: is no run folder; taut analyze -o writes one")
            digest = sealed(Path(place))[RUN]
            if digest in sides[0] or digest in sides[1]:
                raise UsageError(f"{place}: is the same run as {(sides[0] | sides[1])[digest]}; a run counts once")
            side[digest] = place
    if decided.run not in sides[0]:
        was = "redacted" if decided.place is None else f"{decided.place}, and is not there any more or is another run now"
        raise UsageError(f"decision {number}: the place of its run was {was}; give the run with --before RUN")
    return sides


def _named(side: Side) -> list[Detail]:
    from taut.audit.record import Text

    return [{"run": digest, "name": Text(place)} for digest, place in side.items()]


def _measured(before: Side, after: Side) -> Measured | None:
    """Share of the step time that later runs save, with its interval; refused where a run is not of the same job."""
    from taut.graph.joined import difference
    from taut.result.decided_saving import measured_saving
    from taut.run import open_run

    places = [*before.values(), *after.values()]
    first = open_run(places[0])
    steps = [[window.wall_ns for window in first.result.windows]]
    for place in places[1:]:
        other = open_run(place)
        apart = difference(first.graph, other.graph)
        if apart is not None:
            raise UsageError(f"{place}: cannot be compared with {places[0]}: {apart}; give a run of the same job")
        steps.append([window.wall_ns for window in other.result.windows])
    return measured_saving(steps[: len(before)], steps[len(before) :])


def _held(number: int, decided: Expectation, found: Measured | None, before: int, after: int) -> AuditOutcome:
    """What was measured against what was expected. Its record has no number yet."""
    from taut.audit.outcome import judged
    from taut.result.types import AuditOutcome

    saving = None if found is None else found.saving
    return AuditOutcome(
        record=-1,
        decision=number,
        expected_saving=decided.expected,
        expected_from=decided.source,
        measured_saving=saving,
        runs_before=before,
        runs_after=after,
        run_spread=None if found is None else found.run_spread,
        run_spread_from=None if found is None else "runs" if found.runs else "assumed",
        says=judged(decided.expected, decided.source, saving),
    )
