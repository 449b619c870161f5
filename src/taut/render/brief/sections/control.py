"""Control: the layers that decide, which of them work against each other and at what price, and what separates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from taut.render.brief.document import (
    Bar,
    Bars,
    Block,
    Cell,
    Colour,
    Column,
    Edge,
    Empty,
    Grid,
    Network,
    Node,
    Picture,
    Section,
    Terms,
    Text,
)
from taut.render.brief.input_names import short_name
from taut.render.brief.sections.gathered import gathered
from taut.render.brief.sections.indices import meaning_of, name_of, written
from taut.render.brief.written import percent
from taut.render.text import UNKNOWN, count, duration, money, three
from taut.result.brief_types import BriefedRun, BriefedScenario, Briefing, ControlStack
from taut.result.types import Advice, ControlResult, LoopLoss, RelationCost, RelationResult, ReviewRelation, ReviewResult

LAYERS = ("scheduler", "orchestrator", "runtime", "model", "policy", "retry", "fallback", "autoscaler")
"""From the top of the stack to its bottom."""
OTHER = "layer not told"
MOST, ACROSS = 12, 4
"""Relations, and controllers of a layer, that are shown."""
REGIMES = {
    "coherent": "The controllers work together.",
    "oscillating": "Controllers swing back and forth.",
    "amplifying": "Controllers multiply the load that they react to.",
    "incoherent": "Controllers undo each other's decisions.",
}
MEANINGS = (
    (
        "Coherent decision",
        "one that goes the same way as the decision of another controller before it, or the way that demand moved",
    ),
    ("Incoherent decision", "one that goes the other way although demand did not: it undoes what was just done"),
    ("Reversed", "a controller turned a setting the other way than with its last decision"),
    ("Amplification of retries", "retries over retries: one request becomes many attempts"),
)
REVERSALS = ("compensatory_action_rate", "control_oscillation_frequency")
"""Indices that count decisions which turn an earlier one around."""
COUNTED = "of decisions that follow an earlier one on the same setting."
FEW = 2
"""So many controllers without a relation are no picture."""
LEVEL = "Intervals, and bounds (at least, at most), hold the value in 95 of 100 repetitions."
NEEDS = "logs of schedulers, autoscalers, retries or launchers, or a scenario with control loops"


class _Tie(Struct, frozen=True):
    """A relation as it is drawn."""

    kind: str
    controllers: Sequence[str]
    price: str

    @property
    def says(self) -> str:
        """The relation and its price."""
        return f"{self.kind}, {self.price}" if self.price else self.kind


def control(briefing: Briefing) -> Section:
    """Every control log, every run with controllers, and every scenario with loops."""
    runs = [one for one in briefing.runs if one.result.control is not None and one.result.control.actions]
    blocks, commands = gathered(
        [
            *((_of_result(short_name(one.source), one.result, one.stack), one.source.command) for one in briefing.controls),
            *((_of_run(one), one.source.command) for one in runs),
            *((_of_scenario(one), one.source.command) for one in briefing.scenarios),
        ]
    )
    if blocks:
        blocks += _meanings(blocks)
    else:
        says = "Whether controllers work against each other was not measured: no decision of any is on record."
        blocks.append(Empty(says, NEEDS, "taut control LOG…"))
    commands += [f"taut control review {one.source.name}" for one in briefing.scenarios if one.review is not None]
    return Section("control", "Control", blocks, commands)


def _meanings(blocks: Sequence[Block]) -> list[Block]:
    """Of the words of this section those that it uses."""
    text = " ".join(map(str, blocks)).lower()
    counted = "none to count" not in text
    used = [
        (term, says) for term, says in MEANINGS if term.split(" ")[0].lower() in text and (counted or "decision" not in term)
    ]
    return [Terms(used)] if used else []


def _of_run(run: BriefedRun) -> Iterator[Block]:
    found, name = run.result.control, run.result.job.name
    if found is None:
        return
    yield from _of_result(name, found, run.stack)
    known = {key: one for key, one in found.indices.items() if one is not None}
    if known:
        rows = [[name_of(key), meaning_of(key), f"{written(key, one)}{_of(run.stack, key)}"] for key, one in known.items()]
        columns = [Column("Index"), Column("What it means"), Column("Value", True)]
        yield Grid(f"{name}: indices of control", columns, rows, f"{LEVEL}{_at_most(found)}")


def _of(stack: ControlStack | None, key: str) -> str:
    """How many decisions a share counts, of how many."""
    turned, followed = (0, 0) if stack is None else stack.counted.get(key, (0, 0))
    return f": {turned:,} of {followed:,}" if followed else ""


def _at_most(found: ControlResult) -> str:
    """What reversals say where nobody knows whether demand asked for them."""
    if found.regime.kind is not None or not any(found.indices.get(key) is not None for key in REVERSALS):
        return ""
    names = " and ".join(name_of(key) for key in REVERSALS if found.indices.get(key) is not None)
    return f" {names[:1].upper()}{names[1:]} count every reversal, also such as demand may have asked for. Counts: {COUNTED}"


def _of_result(name: str, found: ControlResult, stack: ControlStack | None) -> Iterator[Block]:
    """What a log shows."""
    yield Text(f"{name}: {_says(found, stack)}", "lead" if found.regime.kind else "plain")
    ties = [_Tie(one.kind, one.controllers, _price(one.cost)) for one in found.relations]
    if stack is not None:
        if ties or stack.pairs or len(stack.controllers) > FEW:
            yield _stack(name, stack, ties)
        yield from _decisions(stack)
    if found.relations:
        yield _relations(found.relations)
    advised = [one.advice for one in found.relations if one.advice is not None]
    if advised:
        yield _advice(advised)


def _says(found: ControlResult, stack: ControlStack | None) -> str:
    kind, many = found.regime.kind, _counted(found, stack)
    if kind is None:
        because = f" Because: {found.regime.because}." if found.regime.because else ""
        return f"whether controllers work together is not known, from {many}.{because}"
    shown = (
        f"{count(len(found.relations), 'relation')} between controllers"
        if found.relations
        else "no relation between them shows"
    )
    return f"{kind}. {REGIMES.get(kind, '')} {many} on record; {shown}."


def _counted(found: ControlResult, stack: ControlStack | None) -> str:
    """Decisions as they are counted in the picture: those that name no controller apart."""
    known = sum(one.decisions or 0 for one in stack.controllers) if stack is not None else found.actions
    rest = found.actions - known
    apart = f" ({rest:,} more {'names' if rest == 1 else 'name'} no controller)" if rest > 0 else ""
    return f"{count(known, 'decision')} of {count(len(found.controllers), 'controller')}{apart}"


def _price(cost: RelationCost) -> str:
    if isinstance(cost.money, str) and isinstance(cost.currency, str):
        return money(cost.money, cost.currency)
    if cost.rank_ns is not None:
        return f"{duration(cost.rank_ns)} of ranks"
    return "" if cost.tokens is None else f"{cost.tokens:,} tokens"


def _stack(name: str, stack: ControlStack, ties: Sequence[_Tie]) -> Picture:
    """Layers from top to bottom, controllers in them, relations and decisions between them."""
    rows = _rows(stack, ties)
    fights = {who for tie in ties for who in tie.controllers}
    decided = {one.name: "" if one.decisions is None else count(one.decisions, "decision") for one in stack.controllers}
    nodes = [Node(layer, "work", "other", 0.0, _height(k, rows), 0.0) for k, (layer, _) in enumerate(rows)]
    at: dict[str, int] = {}
    for k, (_, controllers) in enumerate(rows):
        for place, who in enumerate(controllers):
            at[who] = len(nodes)
            colour: Colour = "waiting" if who in fights else "useful"
            x, y = _across(k, place, len(controllers)), _height(k, rows)
            nodes.append(Node(who, "controller", colour, x, y, 0.0, who in fights, decided[who]))
    fought = [f"{' and '.join(tie.controllers)}: {tie.says}" for tie in ties[:MOST]]
    layers = dict.fromkeys(layer for layer, _ in rows)
    alt = f"Layers of control from top to bottom: {', '.join(layers)}. Relations: {'; '.join(fought) or 'none'}."
    fight = ", and who works against whom" if ties else "; no relation between them shows"
    return Picture(f"{name}: layers of control{fight}", alt, Network(nodes, _edges(stack, ties, at)))


def _rows(stack: ControlStack, ties: Sequence[_Tie]) -> list[tuple[str, list[str]]]:
    """(layer, controllers), from top to bottom; controllers of one layer that have a relation stand one below the other."""
    of: dict[str, list[str]] = {}
    for one in stack.controllers:
        of.setdefault(one.layer if one.layer in LAYERS else OTHER, []).append(one.name)
    many = {one.name: one.decisions or 0 for one in stack.controllers}
    shown = {name for some in of.values() for name in sorted(some, key=lambda name: -many[name])[:ACROSS]}
    pairs = {frozenset(pair) for tie in ties for pair in pairwise(tie.controllers)}
    rows: list[tuple[str, list[str]]] = []
    for layer in (*LAYERS, OTHER):
        first = len(rows)
        for name in (name for name in of.get(layer, []) if name in shown):
            row = next((row for row in rows[first:] if not any({name, other} in pairs for other in row[1])), None)
            if row is None:
                rows.append((layer, [name]))
            else:
                row[1].append(name)
    return rows


def _height(row: int, rows: Sequence[object]) -> float:
    return (row + 0.5) / len(rows)


def _across(row: int, place: int, of: int) -> float:
    """Right of the name of the layer; single ones now left, now right, so that lines pass them."""
    return (0.35 if row % 2 else 0.85) if of == 1 else 0.25 + 0.75 * (place + 0.5) / of


def _edges(stack: ControlStack, ties: Sequence[_Tie], at: dict[str, int]) -> list[Edge]:
    """One line between two controllers, downwards or to the right: their relations, and decisions against each other."""
    tied: dict[tuple[int, int], list[str]] = {}
    for tie in ties[:MOST]:
        for first, then in pairwise(at[one] for one in tie.controllers if one in at):
            tied.setdefault((min(first, then), max(first, then)), []).append(tie.says)
    met: dict[tuple[int, int], tuple[int, int]] = {}
    for one in stack.pairs:
        ends = [at[name] for k in (one.first, one.then) if (name := stack.controllers[k].name) in at]
        if len(ends) == 2:
            many, against = met.get((min(ends), max(ends)), (0, 0))
            met[min(ends), max(ends)] = many + one.coherent + one.incoherent, against + one.incoherent
    most = max((many for many, _ in met.values()), default=1)
    return [_edge(pair, tied.get(pair, []), met.get(pair), most) for pair in dict.fromkeys((*met, *tied))]


def _edge(pair: tuple[int, int], tied: list[str], met: tuple[int, int] | None, most: int) -> Edge:
    counted = [] if met is None else [f"{met[1]} of {met[0]} against"]
    return Edge(*pair, 1.0 if met is None else met[0] / most, bool(tied), ", ".join(tied or counted))


def _decisions(stack: ControlStack) -> Iterator[Block]:
    """Coherent and incoherent decisions, counted."""
    if not stack.pairs:
        yield Text(
            "Coherent and incoherent decisions: none to count, as no two controllers are on record that steer one target.",
            "note",
        )
        return
    with_, against = (sum(getattr(one, key) for one in stack.pairs) for key in ("coherent", "incoherent"))
    share = percent(against / (with_ + against))
    yield Text(f"Of {count(with_ + against, 'decision')} that follow another controller's, {against:,} go against it: {share}.")
    bars: list[Bar] = []
    for one in sorted(stack.pairs, key=lambda one: -one.incoherent)[:MOST]:
        group = f"{stack.controllers[one.first].name} → {stack.controllers[one.then].name}"
        bars += [
            Bar("incoherent", one.incoherent, "waiting", f"{one.incoherent:,}", group),
            Bar("coherent", one.coherent, "useful", f"{one.coherent:,}", group),
        ]
    alt = f"Bars of decisions that follow each other: {against:,} incoherent, {with_:,} coherent."
    yield Picture("Decisions that follow another controller's", alt, Bars(bars, "decisions"))


def _relations(relations: Sequence[RelationResult]) -> Grid:
    columns = [
        Column("Relation"), Column("Between, over what"), Column("Times", True), Column("Chance without it", True),
        Column("Cost", True), Column("Because"),
    ]  # fmt: skip
    rows: list[list[Cell | str]] = []
    for one in relations[:MOST]:
        over = " of ".join(word for word in (one.knob, one.target) if word)
        between = f"{', '.join(one.controllers)}{f': {over}' if over else ''}"
        chance = UNKNOWN if one.q is None else "<0.0001" if one.q < 1e-4 else f"{one.q:.2g}"
        rows.append([Cell(one.kind, "bad"), between, f"{one.count:,}", chance, _price(one.cost) or UNKNOWN, one.because])
    left = len(relations) - MOST
    return Grid("Who works against whom", columns, rows, f"{left} more are left out." if left > 0 else "")


def _of_scenario(scenario: BriefedScenario) -> Iterator[Block]:
    """Loops of a scenario: what a simulated run shows, what its configuration implies, and what separates them."""
    name, found = scenario.result.scenario, scenario.result
    if scenario.control is not None:
        yield from _of_result(f"{name}, simulated", scenario.control, scenario.stack)
    elif scenario.review is not None and scenario.stack is not None:
        ties = [_Tie(one.kind, one.controllers, "") for one in scenario.review.relations]
        yield Text(f"{name}: {_reviewed(scenario.review)}", "lead")
        yield _stack(name, scenario.stack, ties)
    losses = found.forecasts[-1].losses
    if isinstance(losses, list) and losses:
        yield from _losses(name, losses)
    if scenario.review is not None:
        yield _implied(scenario.review.relations)
    if isinstance(found.advice, list) and found.advice:
        yield _advice(found.advice)
    metastable = found.forecasts[-1].metastable
    if metastable is True:
        yield Text(
            f"{name}: the pool is metastable. A stall can leave it overloaded by retries after the stall is over.", "warning"
        )


def _reviewed(review: ReviewResult) -> str:
    if not review.relations:
        return f"nothing in the configuration of its {count(len(review.added), 'loop')} would fight."
    many = count(len(review.added), "loop")
    follow = "follows" if len(review.relations) == 1 else "follow"
    return f"{count(len(review.relations), 'relation')} between its {many} {follow} from their configuration alone."


def _losses(name: str, losses: Sequence[LoopLoss]) -> Iterator[Block]:
    bars = [Bar(one.term, one.accelerators, "idle" if one.term == "idle" else "waiting", _lost(one)) for one in losses]
    alt = f"Bars: {'; '.join(f'{one.label} {one.shown}' for one in bars)}."
    yield Picture(f"{name}: accelerators held for nothing that anybody kept", alt, Bars(bars, "accelerators, on average"))


def _lost(one: LoopLoss) -> str:
    priced = "" if one.money_per_hour is None else f", {money(one.money_per_hour, one.currency)} an hour"
    return f"{three(one.accelerators)}{priced}"


def _implied(relations: Sequence[ReviewRelation]) -> Grid:
    """What the configuration alone implies, before anything runs."""
    columns = [Column("Would fight"), Column("Between"), Column("Because"), Column("Smallest change that removes it")]
    rows: list[list[Cell | str]] = [
        [Cell(one.kind, "bad"), ", ".join(one.controllers), one.because, one.remedy] for one in relations[:MOST]
    ]
    note = "Exact, from the numbers of the configuration; what is not given is not judged."
    return Grid(
        "What the configuration implies before anything runs", columns, rows, note if rows else f"Nothing would fight. {note}"
    )


def _advice(advice: Sequence[Advice]) -> Grid:
    """What separates the loops, as it was tried in the simulator."""
    columns = [
        Column("Relation"), Column("Smallest separation that removes it"), Column("Sets"), Column("Effect"), Column("Costs"),
    ]  # fmt: skip
    rows = [_advised(one) for one in advice]
    return Grid(
        "Which loops to separate, and how",
        columns,
        rows,
        "Tried in the simulator, from the smallest change to the largest. Effects that are sure in 95 of 100.",
    )


def _advised(one: Advice) -> list[Cell | str]:
    where = f"{one.kind} on {one.target}" if one.target else one.kind
    if one.separation is None:
        return [where, Cell(f"none of {count(one.tried, 'separation')} tried removes it", "bad"), "", "", ""]
    value = "" if one.value is None else f" = {one.value:g}"
    sets = ", ".join(f"{key.key.replace('.', ' ')}: {_setting(key.before)} → {_setting(key.after)}" for key in one.sets[:3])
    more = f" and {len(one.sets) - 3} more" if len(one.sets) > 3 else ""
    costs = "; ".join([*([one.costs] if one.costs else []), *(f"brings {new.kind}" for new in one.brings)])
    return [where, Cell(f"{one.separation}{value}", "good"), f"{sets}{more}", _effects(one), costs or "nothing known"]


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _effects(one: Advice) -> str:
    """The three indices that surely change most."""
    moved = []
    for name, effect in one.effect.items():
        before, after, change = effect.before, effect.after, effect.change
        if before is None or after is None or change is None or three(before) == three(after):
            continue
        if change.lo is not None and change.hi is not None and change.lo * change.hi > 0:
            moved.append((abs(after - before) / max(abs(before), abs(after)), name, before, after))
    kept = sorted(moved, reverse=True)[:3]
    return "; ".join(f"{_words(name)} {three(before)} → {three(after)}" for _, name, before, after in kept) or "none sure"


def _words(name: str) -> str:
    return name.replace("_", " ")
