"""The evidence of a scenario as a folder that somebody can read who knows none of this; and the list of those that ship."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import file_digest, sha256
from pathlib import Path

from msgspec import UNSET
from rich.console import ConsoleRenderable
from rich.padding import Padding
from rich.text import Text

from taut.core.errors import RunError
from taut.core.folder import is_run_folder
from taut.core.json_text import UNSEEN, json_text
from taut.core.whole_file import whole_file
from taut.render.advice_screen import advice_page
from taut.render.figure_table import change, number
from taut.render.forecast_screen import threshold
from taut.render.terminal import Screen, screen_text
from taut.render.text import safe
from taut.render.threshold_screen import made_by
from taut.render.workload_words import Words, words_of
from taut.result.evidence_types import ComparedEvidence, ScenarioEvidence
from taut.result.types import AppliedPolicy, ListedScenario, PolicyGain, Threshold

DIGESTS = "digests.txt"
MOST_BYTES = 1 << 16
"""Digests of a few files take no more."""
_LISTED = re.compile(r"([0-9a-f]{64}  \S+\n)*")
MEANS = {
    "effective_throughput_ratio": "share of what the accelerators could do that is delivered; 1 loses nothing",
    "energy_per_useful_step": "energy of a {piece} that counts, over what it would take if nothing were lost; 1 is best",
    "runtime_variance_index": "how much {piece}s differ in length; 0 is a clock",
    "sync_delay_amplification": "how much a delay of one part delays the whole; 1 is its fair share",
    "replay_probability": "share of the work that is done and then thrown away",
    "straggler_cascade_rate": "share of the {piece}s in which one late part holds up at least half of the others",
    "effective_capacity": "share of the capacity paid for that ends in work somebody wanted",
    "visible_success_rate": "share of the requests that end well for the one who asked, however often they were tried",
    "planning_confidence": "how far plans can be relied on: share of the windows that went about as planned",
    "actual_attempt_multiplier": "attempts for each piece of work; 1 is best",
    "cost_per_completion": "cost of work that was completed, over what one attempt costs",
    "retry_cascade_frequency": "share of the work that was tried again and again",
    "decision_conflict_rate": "share of the decisions that another controller undid",
    "compensatory_action_rate": "share of the decisions that only undo an earlier one",
    "cross_layer_coherence": "share of the decisions that point the same way as those of other layers",
    "control_overhead_fraction": "share of the capacity that control itself takes",
    "control_oscillation_frequency": "share of a controller's own decisions that turn the one before around",
    "sla_margin_utilisation": "share of the promised time that is used up",
    "margin_erosion_rate": "share of that margin that is lost in a given time; below 0 it grows",
    "planning_accuracy": "how near plans come to what was asked for",
    "cost_attribution_accuracy": "share of the cost that is booked on the work that caused it",
    "capacity_planning_error": "how far planned capacity lies from what was needed",
}
"""Indices in plain words, with a step, a request or a task as the piece; docs/indices.md and docs/control.md define them."""


def write(folder: Path, found: ScenarioEvidence, text: str) -> None:
    """README.md, evidence.json, the scenario as it was given, and their digests; each file whole or not at all.

    Files of somebody else are not replaced. While files are written, the digests list the old ones as well as the new.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "README.md": page(found).encode(),
        "evidence.json": f"{json_text(found)}\n".encode(),
        "scenario.toml": text.encode(),
    }
    old = _own_digests(folder, tuple(files))
    new = "".join(f"{sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    for name, data in ((DIGESTS, (new + old).encode()), *files.items(), (DIGESTS, new.encode())):
        with whole_file(folder / name) as out:
            out.write(data)


def _own_digests(folder: Path, names: Sequence[str]) -> str:
    """What the digests of a folder list; refused if one of its files is not among them."""
    if is_run_folder(folder):
        raise RunError(f"{folder}: is a run folder; give evidence a folder of its own")
    listed = ""
    if (folder / DIGESTS).is_file():
        listed = (folder / DIGESTS).read_bytes()[:MOST_BYTES].decode("utf-8", "replace")
    foreign = [DIGESTS] if listed and not _LISTED.fullmatch(listed) else []
    foreign += [name for name in names if (folder / name).exists() and _digest(folder / name) not in listed]
    if foreign:
        raise RunError(f"{folder / foreign[0]}: exists, and was not written by taut; give another folder")
    return listed


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def page(found: ScenarioEvidence) -> str:
    """The whole README.md; names in a scenario cannot turn its text around, nor hide some of it."""
    text = "\n".join(_lines(found)).rstrip() + "\n"
    return UNSEEN.sub(lambda hidden: hidden[0].encode("unicode_escape").decode(), text)


def _lines(found: ScenarioEvidence) -> Iterator[str]:
    about, compared, words = found.about, found.compared, words_of(found.workload)
    yield from (f"# {found.scenario}", "")
    says = (("How one recognises it", about.pattern), ("What is computed", about.computes), ("What it informs", about.decision))
    for title, text in says:
        if text:
            yield from (f"**{title}.** {text}", "")
    yield from ("## Result", "")
    if compared:
        names = ", ".join(_policy(policy) for policy in compared.policies)
        yield from (f"The system as it stands, beside the same with: {names}.", "", " ".join(compared.implies), "")
        yield from _indices(compared, words)
        yield from _standing(compared, words)
        yield from _gains(found.gains or (), words)
    else:
        yield from (f"- {words.index(name)}: {number(value)}" for name, value in found.indices.items())
        yield ""
    if found.threshold:
        yield from ("As it stands: " + threshold(found.threshold, words.ranks) + made_by(found.threshold), "")
    if found.advice is not UNSET:
        yield from advice_page(found.advice, found.sweep or ())
    yield from ("## Questions", "", "| question | number | which is | taken from |", "|---|---|---|---|")
    for row in found.questions:
        yield f"| {row.question} | {number(row.answer)} | {row.says} | `{row.taken_from}` |"
    yield ""
    if compared:
        yield from _declared(compared, words)
        yield from _convention(compared, words)
    yield from _made(found)


def _policy(policy: AppliedPolicy) -> str:
    value = "" if policy.value is None else f" = {policy.value:g}"
    return f"**{policy.name}{value}** ({policy.says})"


def _indices(compared: ComparedEvidence, words: Words) -> Iterator[str]:
    yield from ("| index | as it stands | with | ratio | in words |", "|---|---:|---:|---:|---|")
    for name, row in compared.indices.items():
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        means = MEANS.get(name, "see docs/control.md").format(piece=words.piece)
        yield f"| {words.index(name)} | {number(row.without)} | {number(row.with_)} | {ratio} | {means} |"
    yield from ("", "Intervals hold 95 of 100 draws. A dash is not known: nothing in the scenario decides it.", "")


def _standing(compared: ComparedEvidence, words: Words) -> Iterator[str]:
    reserve, far, without, with_ = compared.reserve, compared.threshold, compared.forecast.without, compared.forecast.with_
    yield from ("| | as it stands | with |", "|---|---|---|")
    yield f"| regime | {compared.regime.without} | {compared.regime.with_} |"
    if reserve.without or reserve.with_:
        yield f"| reserve (times that jitter may grow) | {number(reserve.without)} | {number(reserve.with_)} |"
    if far.without or far.with_:
        yield f"| one more accelerator stops paying at | {_scale(far.without, words)} | {_scale(far.with_, words)} |"
    for name, before, after in (
        (f"cost of {words.unit}", without.cost_per_unit, with_.cost_per_unit),
        (f"energy of {words.unit}, J", without.energy_per_unit_j, with_.energy_per_unit_j),
    ):
        if before is not None or after is not None:
            yield f"| {name} | {number(before)} | {number(after)} |"
    yield ""
    for policy in compared.policies:
        if policy.costs:
            yield f"- What {policy.name} costs or risks: {policy.costs}"
    yield ""


def _gains(rows: Sequence[PolicyGain], words: Words) -> Iterator[str]:
    """What each policy gives alone, and all of them together."""
    if len(rows) < 2:
        return
    yield from (f"| policy | {words.rate} | cost | energy | regime | stops paying at |", "|---|---:|---:|---:|---|---:|")
    for row in rows:
        limit = "–" if row.tried is None else f"beyond {row.tried:,}" if row.threshold is None else f"{row.threshold:,}"
        changes = (change(one) for one in (row.rate_change, row.cost_per_unit_change, row.energy_per_unit_change))
        yield f"| {row.name.replace(',', ', ')} | {' | '.join(changes)} | {row.regime or '–'} | {limit} |"
    yield ""


def _scale(far: Threshold | None, words: Words) -> str:
    if far is None:
        return "–"
    if far.ranks is None:
        return f"beyond {far.tried:,} {words.ranks}s" if far.tried else "no scale tried"
    low, high = ("–" if end is None else f"{end:,}" for end in (far.lo, far.hi))
    return f"{far.ranks:,} {words.ranks}s ({low} to {high})"


def _declared(compared: ComparedEvidence, words: Words) -> Iterator[str]:
    rows = [(name, row, row.declared, row.difference) for name, row in compared.indices.items()]
    if not any(declared for _, _, declared, _ in rows):
        return
    yield from ("## Beside the literature", "")
    yield "Declared there for such a system, for orientation; nothing here was tuned to it. Difference is computed − declared."
    yield from ("", "| index | declared | computed | difference |", "|---|---|---|---|")
    for name, row, declared, apart in rows:
        if declared is not None and apart is not None:
            yield (
                f"| {words.index(name)} | {declared.without:g} → {declared.with_:g} | "
                f"{' → '.join('–' if one is None else format(one.value, '.3g') for one in (row.without, row.with_))} | "
                f"{' → '.join('–' if one is None else format(one, '+.2g') for one in (apart.without, apart.with_))} |"
            )
    if compared.declared_regime:
        now = f"{compared.regime.without} → {compared.regime.with_}"
        yield f"| regime | {' → '.join(compared.declared_regime)} | {now} | |"
    yield ""


def _convention(compared: ComparedEvidence, words: Words) -> Iterator[str]:
    yield from ("## Risk, as a convention", "")
    yield (
        "The structural-assessment literature states a change as a damping quotient κ = risk with ÷ risk without, and a mode "
        "magnitude ξ = √(−2 ln κ) ÷ σ₀ with σ₀ = 0.00190643. It is a convention, not a measurement; the risk of an index is "
        "its distance from losing nothing. ξ is missing where the risk grew (κ > 1) or vanished."
    )
    yield from ("", "| index | risk is | without | with | κ | ξ |", "|---|---|---:|---:|---:|---:|")
    for name, row in compared.indices.items():
        cells = map(number, (row.risk_without, row.risk_with, row.damping_quotient, row.mode_magnitude))
        yield f"| {words.index(name)} | {row.risk_is} | {' | '.join(cells)} |"
    yield ""
    for symbol, spread in (("κ", compared.dispersion.damping_quotient), ("ξ", compared.dispersion.mode_magnitude)):
        if spread:
            yield f"- {symbol} over {spread.count} indices: mean {spread.mean:.3g}, standard deviation {spread.sd:.3g}"
    yield ""


def _made(found: ScenarioEvidence) -> Iterator[str]:
    yield from ("## Where the numbers come from", "")
    yield from (f"- {source}" for source in found.about.sources)
    if found.defaults:
        yield from ("", "<details><summary>Keys that took taut's defaults, not a source's</summary>", "")
        yield from (", ".join(f"`{key}`" for key in found.defaults), "", "</details>")
    yield from ("", "The definition is in [scenario.toml](scenario.toml), every number in [evidence.json](evidence.json).", "")
    yield from ("Made again, to the byte, by:", "", "```sh", found.command, "```", "")
    yield from (f"- SHA-256 of its {part}: `{digest}`" for part, digest in found.digests.items())


def render_list(found: Sequence[ListedScenario], screen: Screen) -> str:
    """The screen of ``taut project --list``."""
    parts: list[ConsoleRenderable] = []
    for one in found:
        text = f"{safe(one.pattern)}\n→ {safe(one.decision)}"
        parts += [Text(safe(one.name), style="bold"), Padding(Text(text), (0, 0, 1, 2))]
    return screen_text(
        [
            *parts,
            Text("taut project NAME computes one, --show NAME prints its TOML; --evidence DIR writes it down.", style="dim"),
        ],
        screen,
    )
