"""The audit trail on a terminal: the log, what a record rests on, what a verification found, what a decision brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from taut.render.terminal import Screen, screen_text
from taut.render.text import UNKNOWN, count, middle, percent, safe
from taut.result.types import (
    AuditAdoptResult,
    AuditAgain,
    AuditLogResult,
    AuditOutcome,
    AuditRecord,
    AuditVerification,
    AuditWhyResult,
    Estimate,
)

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

    from taut.core.array_types import Json

SHORT = 12
"""Characters of a hash that are shown."""
MOST = 8
"""Files of a record that are shown one by one."""
DEEPEST = 8
"""Levels of a chain that are shown further in than the one above."""
LONGEST = 600
"""Characters of a reason that are shown."""


def render_log(result: AuditLogResult, screen: Screen) -> str:
    """The whole screen of ``taut audit log``."""
    head = Text(f"{safe(result.log)}: {count(result.size, 'record')}", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in result.records:
        table.add_row(str(one.index), _when(one), Text(_line(one)))
    return screen_text([head, Text(f"root {safe(result.root)}", style="dim"), table], screen)


def render_why(result: AuditWhyResult, screen: Screen) -> str:
    """The whole screen of ``taut audit why``: each record, and what it rests on below it."""
    parts: list[ConsoleRenderable] = []
    for link in result.chain:
        rests = "because of " if link.depth else ""
        head = Text(f"{rests}record {link.record.index}: {_line(link.record)}", style="bold")
        parts.append(_indented(head, link.depth))
        parts += [_indented(Text(line), link.depth + 1) for line in _body(link.record)]
    return screen_text([*parts, *_again(result.again)], screen)


def _indented(text: Text, depth: int) -> ConsoleRenderable:
    """A text all of whose lines stand as far in as it lies deep."""
    return Padding(text, (0, 0, 0, 2 * min(depth, DEEPEST)))


def _again(found: AuditAgain | None) -> list[Text]:
    if found is None:
        return []
    if found.same:
        return [Text(f"run again, record {found.record} gives the same bytes: {count(len(found.compared), 'file')}", "bold")]
    names = ", ".join(map(safe, found.differs[:MOST]))
    return [Text(f"run again, record {found.record} differs in {count(len(found.differs), 'file')}: {names}", "bold red")]


def render_verification(result: AuditVerification, screen: Screen) -> str:
    """The whole screen of ``taut audit verify``."""
    if result.alone is not None:
        return screen_text(_alone(result), screen)
    if not result.ok:
        first = f", the first that is not as it was written is {result.first_bad}" if result.first_bad is not None else ""
        lines = [
            f"not as it was recorded: {safe(result.says)}",
            f"{count(result.kept, 'record')} of {result.records} kept{first}",
        ]
        return screen_text([Text(lines[0], style="bold red"), Text(lines[1])], screen)
    held = "not anchored: --key, --checkpoint or --witness hold it against something kept elsewhere"
    if result.anchored:
        rest = result.records - result.anchored_records
        later = f"; {count(rest, 'later record')} consistent with it" if rest else ""
        held = f"anchored by a {result.anchor} up to {count(result.anchored_records, 'record')}{later}"
    gone = [(result.redacted, "redacted text"), (result.pruned, "pruned record")]
    what = "the run's files and proof, and " if result.run else ""
    head = Text(f"consistent: {what}{count(result.records, 'record')} of {safe(result.log)}", style="bold")
    return screen_text([head, Text(held), *(Text(count(number, noun)) for number, noun in gone if number)], screen)


def _alone(result: AuditVerification) -> list[Text]:
    """What a proof shows without its log."""
    if not result.ok:
        return [Text(f"not as it was recorded: {safe(result.says)}", style="bold red")]
    what = "the run's files, and the proof of " if result.run else "the proof of "
    log = f"its log is not here: {safe(result.log)}, {count(result.records, 'record')} then"
    return [Text(f"consistent: {what}record {result.alone}", style="bold"), Text(f"anchored by a {result.anchor}"), Text(log)]


def render_adopt(result: AuditAdoptResult, screen: Screen) -> str:
    """The whole screen of ``taut audit adopt``: a log with the keys that signed it, or the list of logs."""
    if not result.logs:
        return screen_text([Text("you use no audit log yet: any verb of taut's begins one")], screen)
    parts: list[ConsoleRenderable] = []
    for log in result.logs:
        since = {"begun": "begun by you", "adopted": "adopted", "signed": "signed by an earlier version of taut"}[log.since]
        parts.append(Text(f"{safe(log.path or UNKNOWN)}: {since}", style="bold"))
        size = "" if log.records is None else f": {count(log.records, 'record')}"
        parts.append(_indented(Text(f"{safe(log.log)}{size}"), 1))
        for signer in log.signers or ():
            whose = "yours" if signer.own else "not yours"
            line = f"signed up to {count(signer.records, 'record')} by key {safe(signer.key)} ({whose})"
            parts.append(_indented(Text(line), 1))
        if log.signers == []:
            parts.append(_indented(Text("not signed by anybody so far"), 1))
    return screen_text(parts, screen)


def render_outcome(result: AuditOutcome, screen: Screen) -> str:
    """The whole screen of ``taut audit outcome``."""
    who = {"given": "expected by the decision", "finding": "expected from the finding", None: "expected"}[result.expected_from]
    runs = f"{count(result.runs_before, 'run')} before, {result.runs_after} after"
    lines = [f"{who}: {saving(result.expected_saving)} of the step time", f"measured: {saving(result.measured_saving)}, {runs}"]
    if result.run_spread is not None:
        told = "which is assumed" if result.run_spread_from == "assumed" else "as they tell themselves"
        lines.append(f"runs of one job were taken to differ by {percent(result.run_spread)}, {told}")
    head = f"decision {result.decision}: {result.says}"
    return screen_text([Text(head, style="bold"), *map(Text, lines)], screen)


def saving(estimate: Estimate | None) -> str:
    """A share of the step time with its ends."""
    if estimate is None:
        return UNKNOWN
    ends = "" if estimate.lo is None or estimate.hi is None else f" ({percent(estimate.lo)} to {percent(estimate.hi)})"
    return f"{percent(estimate.value)}{ends}"


def _saving(value: Json) -> str:
    """A recorded share of the step time with its ends."""
    numbers = [value.get(key) for key in ("value", "lo", "hi")] if isinstance(value, dict) else []
    found, lo, hi = [each if isinstance(each, (int, float)) else None for each in numbers] or (None, None, None)
    return saving(None if found is None else Estimate(value=found, lo=lo, hi=hi))


def _when(record: AuditRecord) -> str:
    return f"{record.at[:10]} {record.at[11:19]}" if record.at else f"{UNKNOWN:<19}"


def _line(record: AuditRecord) -> str:
    """A record in a line."""
    told = record.details
    match record.kind:
        case None:
            return "pruned: its time was over, its hash is kept"
        case "verb":
            return " ".join([f"taut {_word(told.get('verb'))}", *map(_word, _names(told, "inputs")), *_to(told)])
        case "decision":
            return f"decided on {_word(told.get('finding'))}: {_word(told.get('do'))} (by {_word(told.get('by'))})"
        case "outcome":
            return f"outcome of decision {_word(told.get('decision'))}: {_word(told.get('says'))}"
        case "redaction":
            return f"texts of record {_word(told.get('record'))} taken out"
        case "prune":
            return f"records from before {_word(told.get('before'))} taken out"
    return safe(record.kind)


def _to(details: dict[str, Json]) -> list[str]:
    names = [_word(name) for name in _names(details, "outputs")]
    return ["→", *names] if names else []


def _names(details: dict[str, Json], key: str) -> list[Json]:
    found = details.get(key)
    return [one.get("name") for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _word(value: Json) -> str:
    return "[taken out]" if value is None else middle(safe(value), 60)


def _body(record: AuditRecord) -> Sequence[str]:
    """What a record says, as far as it fits a screen: who decided why, options, digests, version and seed."""
    told = record.details
    if record.at is None:
        return [f"sha256 {safe(record.sha256)}"]
    seed = f", seed {_word(told['seed'])}" if told.get("seed") else ""
    lines = [f"{_when(record)} UTC, taut {safe(record.version)}{seed}"]
    lines += [f"because: {middle(safe(told['because']), LONGEST)}"] if told.get("because") is not None else []
    lines += [f"{key}: {_saving(told[key])}" for key in ("expected", "measured") if told.get(key) is not None]
    options = told.get("options")
    if isinstance(options, dict) and (given := {key: value for key, value in options.items() if value is not False}):
        lines.append("options: " + ", ".join(f"{safe(key)} {_word(value)}" for key, value in given.items()))
    read = told.get("read")
    files = [one for one in read if isinstance(one, dict)] if isinstance(read, list) else []
    lines += [f"read {_word(one.get('name'))} sha256 {_word(one.get('sha256'))[:SHORT]}" for one in files[:MOST]]
    return lines + ([f"read {len(files) - MOST} more files"] if len(files) > MOST else [])
