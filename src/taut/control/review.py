"""Relations that a configuration of control loops implies before any of them runs. Exact, from the numbers given.

A change is reviewed as two configurations: what it adds, alters and removes, which relations the new one has, and which of
them are new. What is not given in a configuration is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import ceil, inf, prod

from msgspec.structs import asdict, replace

from taut.control.metastability import Point, fixed_points
from taut.control.relation import joined
from taut.read.actions.loops_config import Loop
from taut.result.types import ReviewChange, ReviewRelation, ReviewResult

NEAR = 0.1
"""Periods that differ by less than this share beat slowly: their decisions meet for a long while, again and again."""
MOST_ATTEMPTS = 64
"""Attempts at one request that the retry-load equation is asked about at most: two loads are two loads."""
BUDGETS = (0.5, 0.2, 0.1, 0.02)
"""Budgets of retries a request that are tried as a remedy, the largest first."""


def review(old: Sequence[Loop], new: Sequence[Loop]) -> ReviewResult:
    """What a change from one configuration to another adds, and which relations the new one implies."""
    before, after = ({loop.name: loop for loop in loops} for loops in (old, new))
    known, found = ({_key(one): one for one in implied_relations(loops)} for loops in (old, new))
    relations = [replace(one, new=key not in known) for key, one in found.items()]
    return ReviewResult(
        added=[name for name in after if name not in before],
        removed=[name for name in before if name not in after],
        changed=[change for name in after if name in before for change in _changes(before[name], after[name])],
        relations=sorted(relations, key=lambda one: not one.new),
        resolved=[one for key, one in known.items() if key not in found],
    )


def _key(one: ReviewRelation) -> tuple[str, tuple[str, ...], str | None, str | None]:
    """What makes a relation the same one in another configuration."""
    return one.kind, tuple(one.controllers), one.target, one.knob


def _relation(
    kind: str, controllers: Sequence[str], target: str, knob: str, statistic: float, because: str, remedy: str
) -> ReviewRelation:
    """``statistic`` by kind: limit over need, attempts, owners, delay over look-back, seconds of a beat, attempts a request."""
    return ReviewRelation(
        kind=kind,
        controllers=list(controllers),
        target=target or None,
        knob=knob or None,
        statistic=statistic,
        new=False,
        because=because,
        remedy=remedy,
    )


def _changes(before: Loop, after: Loop) -> list[ReviewChange]:
    one, two = asdict(before), asdict(after)
    return [ReviewChange(name=after.name, key=key, before=one[key], after=two[key]) for key in one if one[key] != two[key]]


def implied_relations(loops: Sequence[Loop]) -> list[ReviewRelation]:
    """All relations of one configuration."""
    by_name = {loop.name: loop for loop in loops}
    cycles = _cycles(by_name)
    out = [*cycles, *_deadlines(loops, by_name), *_owners(loops), *_short_look_backs(loops), *_near_periods(loops)]
    if not cycles:  # what calls itself makes attempts without end: products mean nothing
        chains = _chains(by_name)
        out += [*_products(loops, by_name, chains), *_metastable(loops, by_name, chains)]
    return out


def longest(loop: Loop) -> float | None:
    """How long a loop may take until it gives up: all attempts and the pauses between them, or its deadline."""
    if loop.timeout_s is None:
        return loop.deadline_s
    whole = (loop.retries + 1) * loop.timeout_s + loop.retries * loop.back_off_s
    return whole if loop.deadline_s is None else min(whole, loop.deadline_s)


def _s(seconds: float) -> str:
    return f"{seconds:.4g} s"


def _cycles(by_name: Mapping[str, Loop]) -> list[ReviewRelation]:
    """Loops that call themselves, through whatever lies between: what is left when all that leads to an end is taken away."""
    left = dict(by_name)
    while ends := [name for name, loop in left.items() if not any(callee in left for callee in loop.calls)]:
        for name in ends:
            del left[name]
    if not left:
        return []
    path = [next(iter(left))]
    while (step := next(callee for callee in left[path[-1]].calls if callee in left)) not in path:
        path.append(step)
    path = path[path.index(step) :]
    because = f"{' → '.join([*path, path[0]])} is a cycle of calls: every attempt starts further ones, without end"
    return [_relation("feedback loop", tuple(path), "", "calls", float(len(path)), because, "remove one of these calls")]


def _deadlines(loops: Sequence[Loop], by_name: Mapping[str, Loop]) -> list[ReviewRelation]:
    """Limits shorter than what they limit."""
    out = []
    for loop in loops:
        whole = longest(replace(loop, deadline_s=None))
        if loop.deadline_s is not None and whole is not None and loop.deadline_s < whole:
            out.append(_too_short(loop, loop, loop.deadline_s, whole, f"within its own deadline of {_s(loop.deadline_s)}"))
        limit = min((x for x in (loop.timeout_s, loop.deadline_s) if x is not None), default=None)
        for name in dict.fromkeys(loop.calls):
            needs = longest(by_name[name])
            if limit is not None and needs is not None and limit < needs:
                out.append(_too_short(loop, by_name[name], limit, needs, f"within the {_s(limit)} of {loop.name}"))
    return out


def _too_short(outer: Loop, inner: Loop, limit: float, needs: float, within: str) -> ReviewRelation:
    one = inner.timeout_s or needs
    begun = min(inner.retries + 1, ceil(limit / (one + inner.back_off_s)))
    parts = f"{inner.retries + 1} × {_s(one)}" + (f" + {inner.retries} × {_s(inner.back_off_s)}" if inner.back_off_s else "")
    because = (
        f"{inner.name} may take {parts} = {_s(needs)}; {within} {begun} of {inner.retries + 1} attempts can begin, and the one "
        f"that is still running then is wasted"
    )
    fits = max(int((limit + inner.back_off_s) // (one + inner.back_off_s)) - 1, 0)
    remedy = f"give {outer.name} at least {_s(needs)}, or {inner.name} at most {fits} retries" + (
        f" (a single attempt takes {_s(one)})" if one > limit else ""
    )
    who = (outer.name,) if outer is inner else (outer.name, inner.name)
    return _relation("timeout mismatch", who, inner.target, "timeout", limit / needs, because, remedy)


def _chains(by_name: Mapping[str, Loop]) -> dict[str, list[str]]:
    """Loop → the chain of calls below it, itself first, with the most attempts. There are no cycles."""
    worst: dict[str, tuple[int, list[str]]] = {}
    waiting = list(by_name)
    while waiting:
        name = waiting[-1]
        below = [callee for callee in by_name[name].calls if callee not in worst]
        if below and name not in worst:
            waiting += below
            continue
        waiting.pop()
        attempts, chain = max((worst[callee] for callee in by_name[name].calls), key=lambda w: w[0], default=(1, []))
        worst[name] = (attempts * (by_name[name].retries + 1), [name, *chain])
    return {name: chain for name, (_, chain) in worst.items()}


def _products(loops: Sequence[Loop], by_name: Mapping[str, Loop], chains: Mapping[str, list[str]]) -> list[ReviewRelation]:
    """Layers of retries without a budget, which multiply, from where the calls begin."""
    called = {name for loop in loops for name in loop.calls}
    out = []
    for loop in loops:
        retrying = [by_name[name] for name in chains[loop.name] if by_name[name].retries and by_name[name].budget_share is None]
        if loop.name in called or len(retrying) < 2:
            continue
        attempts = prod(one.retries + 1 for one in retrying)
        product = " × ".join(f"{one.retries + 1} ({one.name})" for one in retrying)
        names, target = tuple(one.name for one in retrying), by_name[chains[loop.name][-1]].target
        because = (
            f"{joined(names)} retry the same requests, so that their retries multiply: {product} = {attempts} attempts at one "
            f"request to {target or 'the system'}"
        )
        most = max(one.retries + 1 for one in retrying)
        remedy = f"let one layer retry: at most {most} attempts; or give every layer a budget of retries"
        out.append(_relation("amplification", names, target, "attempt", float(attempts), because, remedy))
    return out


def _owners(loops: Sequence[Loop]) -> list[ReviewRelation]:
    """Knobs of one target that several owners turn."""
    knobs: dict[tuple[str, str], list[Loop]] = {}
    for loop in loops:
        if loop.target and loop.knob:
            knobs.setdefault((loop.target, loop.knob), []).append(loop)
    out = []
    for (target, knob), some in knobs.items():
        owners = dict.fromkeys(loop.owner or loop.name for loop in some)
        if len(owners) < 2:
            continue
        names = tuple(loop.name for loop in some)
        every = [loop.period_s for loop in some if loop.period_s is not None]
        often = f", up to {sum(60 / p for p in every):.3g} decisions a minute" if len(every) == len(some) else ""
        because = f"{joined(names)} ({len(owners)} owners) all set {knob} of {target}{often}: each may undo the other"
        remedy = f"let one of them set {knob} of {target}, and the others report to it"
        out.append(_relation("conflict", names, target, knob, float(len(owners)), because, remedy))
    return out


def _short_look_backs(loops: Sequence[Loop]) -> list[ReviewRelation]:
    """Loops that decide again before they can see what they did."""
    out = []
    for loop in loops:
        if loop.delay_s is None or loop.look_back_s is None or loop.look_back_s >= loop.delay_s:
            continue
        if loop.period_s is not None and loop.period_s >= loop.delay_s:
            continue
        again = f", {ceil(loop.delay_s / loop.period_s)} decisions before the first has an effect" if loop.period_s else ""
        because = (
            f"{loop.name} looks back {_s(loop.look_back_s)}, but its changes of {loop.target or 'the system'} take "
            f"{_s(loop.delay_s)} to show{again}: it corrects what it has already corrected, and oscillates"
        )
        remedy = f"look back, or wait after a change, for at least {_s(loop.delay_s)}"
        ratio = loop.delay_s / loop.look_back_s
        out.append(_relation("oscillation", (loop.name,), loop.target, loop.knob, ratio, because, remedy))
    return out


def _near_periods(loops: Sequence[Loop]) -> list[ReviewRelation]:
    """Loops on one target that decide at the same moments: always, or for a while again and again."""
    targets: dict[str, list[Loop]] = {}
    for loop in sorted((x for x in loops if x.target and x.period_s), key=lambda x: x.period_s or 0.0):
        targets.setdefault(loop.target, []).append(loop)
    out = []
    for target, some in targets.items():
        for one, two in pairwise(some):
            short, long = one.period_s or 1.0, two.period_s or 1.0
            if (one.owner or one.name) == (two.owner or two.name) or long / short - 1 >= NEAR:
                continue
            beat = short * long / (long - short) if long > short else 0.0
            met = f"decide together every {_s(beat)}" if beat else "always decide together"
            because = (
                f"{one.name} ({_s(short)}) and {two.name} ({_s(long)}) act on {target} and {met}, each without having seen "
                f"what the other did"
            )
            remedy = f"give {two.name} at least {_s(3 * short)}: it then sees three decisions of {one.name}"
            out.append(_relation("aliasing", (one.name, two.name), target, "period", beat, because, remedy))
    return out


def _metastable(loops: Sequence[Loop], by_name: Mapping[str, Loop], chains: Mapping[str, list[str]]) -> list[ReviewRelation]:
    """Systems with two stable loads: a stall can leave them in the upper one.

    Attempts are those of all layers above and below together; patience is that of the layer next to the system.
    """
    above: dict[str, list[str]] = {name: [] for name in by_name}
    for loop in loops:
        for name in dict.fromkeys(loop.calls):
            above[name].append(loop.name)
    out = []
    for loop in loops:
        chain = [by_name[name] for name in chains[loop.name]]
        patience = next((one.timeout_s for one in reversed(chain) if one.timeout_s), None)
        if not (loop.per_s and loop.serves_per_s and patience):
            continue
        attempts = int(_above(loop.name, by_name, above, lambda one: one.retries + 1))
        spent = _above(loop.name, by_name, above, _spends)
        for one in chain:
            attempts, spent = min(attempts * (one.retries + 1), MOST_ATTEMPTS), spent * _spends(one)
        points = _stable(loop, patience, attempts - 1, spent - 1)
        if len(points) < 2:
            continue
        calm = max(r for r in range(attempts) if len(_stable(loop, patience, r)) < 2)
        budget = next((b for b in BUDGETS if len(_stable(loop, patience, attempts - 1, b)) < 2), None)
        low, high = points[0], points[-1]
        because = (
            f"a stall of {loop.target or 'the system'} leaves {loop.name} overloaded: {loop.per_s:g} requests a second at "
            f"{loop.serves_per_s:g} served, a timeout of {_s(patience)} and {attempts} attempts have two stable loads, "
            f"{low.rate:.3g} attempts a second, and {high.rate:.3g} with {high.late:.0%} too late (M/M/1 assumed)"
        )
        remedy = f"allow at most {calm} retries in all" + (
            f", or a budget of {budget:g} retries a request in all" if budget is not None else ""
        )
        times = high.rate / loop.per_s
        out.append(_relation("metastability", (loop.name,), loop.target, "attempt", times, because, remedy))
    return out


def _spends(loop: Loop) -> float:
    """Attempts for each that is asked of a loop, averaged, when all fail."""
    return 1 + (loop.retries if loop.budget_share is None else min(loop.retries, loop.budget_share))


def _above(name: str, by_name: Mapping[str, Loop], above: Mapping[str, list[str]], each: Callable[[Loop], float]) -> float:
    """Most calls that one request makes of a loop, if every loop makes ``each`` of one. There are no cycles."""
    most: dict[str, float] = {}
    waiting = [name]
    while waiting:
        here = waiting[-1]
        unknown = [caller for caller in above[here] if caller not in most]
        if unknown and here not in most:
            waiting += unknown
            continue
        waiting.pop()
        most[here] = max((most[caller] * each(by_name[caller]) for caller in above[here]), default=1)
    return most[name]


def _stable(loop: Loop, patience_s: float, retries: int, budget: float = inf) -> list[Point]:
    """The stable loads of the system behind a loop."""
    return [p for p in fixed_points(loop.per_s or 0.0, loop.serves_per_s or 0.0, patience_s, retries, budget) if p.stable]
