"""What can be asked of a run, with what each single fix saves; and answers, priced."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.errors import UsageError
from taut.core.finding_place import fixes_of
from taut.core.question_words import factor_words, fix_words
from taut.graph import Graph
from taut.replay.policy_names import KNOWN, refusal
from taut.replay.policy_names import asked as policy_of
from taut.replay.timeline import replay
from taut.replay.whatif import Dimension
from taut.result.types import Regimes, WhatIfResult
from taut.result.view_types import Answer, Choice, PolicyChoice, Questions
from taut.views.headlines import in_order, title
from taut.views.ideal import of_other_stages
from taut.views.replays import Question, Replays
from taut.views.run_course import ledger_rate

MOST = 50
"""Choices of a kind, at most."""
VISITS = 100_000_000
"""Op visits that all savings together may cost: of a large run fewer of them are told."""
ONE_BY_ONE = 8
"""Findings, links, and ranks that became slow, that are replayed one by one at most."""
POLICY_OPS = 2_000_000
"""Ops up to which policies are told: they take about a kilobyte an op."""
KINDS = ("rank", "stage", "link", "class", "gate")
SCALES = {"work": [0.5, 1.5], "bandwidth": [0.25, 8.0], "gaps": [0.0, 2.0]}
"""Least and most of each slider."""
POLICIES: Mapping[str, tuple[str, list[str]]] = {
    "local-steps": ("replicas meet only every so many steps", ["2", "4", "8", "16"]),
    "semi-synchronous": ("a replica may be so many steps ahead of the slowest", ["1", "2", "4", "8"]),
    "backup-workers": ("a step goes on without so many of the slowest replicas", ["1", "2", "4"]),
    "overlap": ("so much of the transfers runs under compute", ["0.5", "0.9"]),
    "deal-by-speed": ("slower replicas get less work", []),
}
"""Policy of a measured run → what it does, and values to choose from."""
CENT = Decimal("0.01")


def questions(replays: Replays) -> Questions:
    """What can be asked of a run."""
    rate = ledger_rate(replays.run.result)
    return Questions(
        choices={"finding": _findings(replays)} | _choices(replays),
        policies=_policies(replays.graph),
        scales=SCALES,
        actual_wall_ns=replays.actual_wall_ns,
        rank_hour=None if rate is None else str(rate[0].quantize(Decimal("0.0001"))),
        currency=None if rate is None else rate[1],
        ranks=len(replays.graph.ranks),
    )


def ahead(replays: Replays) -> Iterator[Callable[[], object]]:
    """What answers rest on, in short parts, to be made before it is asked for."""
    yield lambda: replays.result(Question(fixes=[("rank", str(int(replays.graph.ranks[0])))]))
    yield lambda: replays.mended
    yield lambda: replays.regime(Question())
    if offered := _policies(replays.graph):
        yield lambda: replays.policies
        exact = [f"{one.name}={value}" for one in offered for value in one.values if KNOWN[one.name].kind == "exact"]
        yield from (partial(replays.policies.regime, policy_of(one, replays.policies.observed.met.units)) for one in exact)


def _policies(graph: Graph) -> list[PolicyChoice]:
    """Policies that a run can be asked about, with values that are not refused; none where no replicas meet."""
    from taut.replay.data_parallel import data_parallel
    from taut.replay.exact_policies import outlined

    if len(graph.ranks) < 2 or (met := data_parallel(graph)).refused:
        return []
    job, out = outlined(graph, met), list[PolicyChoice]()
    for name in KNOWN:
        meaning, all_values = POLICIES[name]
        values = [value for value in all_values if not refusal(job, policy_of(f"{name}={value}", met.units))]
        if values or not (all_values or refusal(job, policy_of(name, met.units))):
            out.append(PolicyChoice(name=name, meaning=meaning, values=values))
    return out


def _findings(replays: Replays) -> list[Choice]:
    """Findings that a fix mends, as they are listed."""
    result = replays.run.result
    found = [(one, fixes) for one in in_order(result) if (fixes := fixes_of(one))]
    return [
        Choice(
            fix=fixes[0],
            fixes=fixes,
            label=title(one, result),
            saved_share=_alone(replays, [fix_words(fix) for fix in fixes]) if k < _few(replays) else None,
        )
        for k, (one, fixes) in enumerate(found[:MOST])
    ]


# ---------------------------------------------------------------------------------------------------------------------
# What each saves alone


def _choices(replays: Replays) -> dict[str, list[Choice]]:
    """Kind → what of it can be set to its reference, the most saving first; savings of all kinds from one batch."""
    dims = {one.name: one for one in replays.dims if one.name in KINDS}
    top = {name: _top(replays, dim) for name, dim in dims.items()}
    saved = _replayed(replays, dims, top)
    return {name: _listed(replays, dims[name], top[name], saved.get(name, {})) for name in dims}


def _top(replays: Replays, dim: Dimension) -> list[int]:
    """Keys of a dimension that may matter most: as the decomposition of the result has them."""
    whatif = replays.run.result.whatif
    by = whatif.by.get(dim.name, {}) if whatif is not None else {}
    order = sorted(range(len(dim.labels)), key=lambda key: -by.get(dim.labels[key], 0.0))
    return order[:MOST]


def _replayed(replays: Replays, dims: Mapping[str, Dimension], top: Mapping[str, list[int]]) -> dict[str, dict[int, float]]:
    """Kind → key → what it saves alone, of the wall; as many as the op visits allow."""
    graph, wall = replays.graph, max(replays.actual_wall_ns, 1)
    each = max(VISITS // max(len(graph) * len(dims), 1), 2)
    told = {name: keys[:each] for name, keys in top.items() if name != "link" and keys}
    prepared, out = replays.batch, dict[str, dict[int, float]]()
    for reference_ns, names in _references(replays, dims):
        asked = [name for name in names if name in told]
        cuts = [(_numbered(dims[name].key, told[name]), len(told[name])) for name in asked]
        walls = prepared.many(graph.work_ns, reference_ns, cuts, graph.gap_ns) if cuts else []
        for name, found in zip(asked, walls, strict=True):
            out[name] = dict(zip(told[name], ((wall - found.sum(axis=0)) / wall).tolist(), strict=True))
    for name in ("rank", "link"):
        if name in dims:
            out.setdefault(name, {}).update(_one_by_one(replays, dims[name], top[name]))
    return out


def _numbered(key: Ints, chosen: Sequence[int]) -> Ints:
    """Keys as places in a list of chosen ones, -1 for the others."""
    place = np.full(int(key.max(initial=-1)) + 2, -1, dtype=np.int64)
    place[list(chosen)] = np.arange(len(chosen))
    return place[key]  # the last place, of -1, is none


def _references(replays: Replays, dims: Mapping[str, Dimension]) -> Iterator[tuple[Ints, Sequence[str]]]:
    """(work of every op at its reference, kinds that have this reference): stages are compared with the other stages."""
    graph = replays.graph
    yield _filled(graph, replays.run.reference_ns), [name for name in dims if name != "stage"]
    if "stage" in dims:
        yield _filled(graph, of_other_stages(graph, dims["stage"])), ["stage"]


def _filled(graph: Graph, known: Floats) -> Ints:
    return np.where(np.isnan(known), graph.work_ns, np.rint(np.nan_to_num(known))).astype(np.int64)


def _one_by_one(replays: Replays, dim: Dimension, top: Sequence[int]) -> dict[int, float]:
    """Key → saving of what has a past of its own, or is a link: mending it changes more than its own ops."""
    if dim.name == "rank":
        slow = [str(int(replays.graph.ranks[place.rank])) for place in replays.slowdowns.ranks]
        top = [dim.labels.index(name) for name in dict.fromkeys(slow)]
    return {key: _alone(replays, [(dim.name, dim.labels[key])]) for key in top[: _few(replays)]}


def _few(replays: Replays) -> int:
    """How many are replayed one by one."""
    return min(ONE_BY_ONE, max(VISITS // (10 * max(len(replays.graph), 1)), 1))


def _alone(replays: Replays, fixes: Sequence[tuple[str, str]]) -> float:
    """What some fixes together save, of the wall."""
    return replays.result(Question(fixes=fixes)).saved_share


def _listed(replays: Replays, dim: Dimension, top: Sequence[int], saved: Mapping[int, float]) -> list[Choice]:
    """The choices of a kind: those that were replayed, the most saving first, then the others."""
    labels = {str(row.rank): row.label for row in replays.run.result.ranks or ()} if dim.name == "rank" else {}
    keys = sorted(dict.fromkeys([*saved, *top]), key=lambda key: -saved.get(key, -np.inf))[:MOST]
    return [
        Choice(
            fix=f"{dim.name}={label}", fixes=[f"{dim.name}={label}"], label=labels.get(label, label), saved_share=saved.get(key)
        )
        for key, label in ((key, dim.labels[key]) for key in keys)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def question(fixes: Iterable[str] = (), policies: Iterable[str] = (), scales: Mapping[str, str] | None = None) -> Question:
    """A question in the words of an address: ``rank=3``, ``local-steps=4``, work → ``0.9``; refused in a line."""
    try:
        return Question(
            fixes=[fix_words(one) for one in fixes],
            policies=list(policies),
            scales=dict(factor_words(f"{key}={value}") for key, value in (scales or {}).items()),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def canonical(asked: Question) -> str:
    """A question as text, the same however it is put together: ``fix=rank=3&work=0.9``."""
    fixes = sorted(f"fix={key}={label}" for key, label in asked.fixes)
    policies = [f"policy={one}" for one in asked.policies]
    return "&".join([*fixes, *policies, *(f"{key}={_plain(asked.scales[key])}" for key in SCALES if key in asked.scales)])


def _plain(factor: float) -> str:
    """A factor with all its digits, as scripts of the page write it: 2, 0.9."""
    return str(int(factor)) if factor == int(factor) else repr(factor)


def command(folder: str, asked: Question) -> str:
    """The command that says the same."""
    words = [f"--fix {shlex.quote(f'{key}={label}')}" for key, label in asked.fixes]
    words += [f"--scale {key}={_plain(factor)}" for key, factor in asked.scales.items()]
    words += [f"--policy {shlex.quote(one)}" for one in asked.policies]
    return " ".join(["taut whatif", shlex.quote(folder), *words])


def answer(replays: Replays, asked: Question) -> Answer:
    """What a change gives, with its money and its regime. Nothing asked is the run as it was."""
    if asked.policies and len(replays.graph) > POLICY_OPS:
        why = f"{len(replays.graph):,} ops are more than the {POLICY_OPS:,} of which policies are told here"
        raise UsageError(f"--policy {asked.policies[0]}: {why}; ask in a shell: {command(str(replays.run.folder), asked)}")
    run, result = replays.run, replays.result(asked)
    rate, share = ledger_rate(run.result), _saved(result)
    hour = None if rate is None else rate[0] * len(replays.graph.ranks) * Decimal(share)
    return Answer(
        command=command(str(run.folder), asked),
        result=result,
        saved_per_hour=None if hour is None else str(hour.quantize(CENT)),
        saved_per_day=None if hour is None else str((24 * hour).quantize(CENT)),
        currency=None if rate is None else rate[1],
        note=_note(replays, asked, result),
        regime=_regime(replays, asked, result),
        effective_throughput_ratio=_ratio(replays, asked, result),
    )


def _note(replays: Replays, asked: Question, result: WhatIfResult) -> str | None:
    """Why the finding whose fix or policy is asked for says another figure."""
    if asked.policies:
        return _policy_note(replays, asked, result)
    fixes = {f"{key}={label}" for key, label in asked.fixes}
    told = [one for one in replays.run.result.findings if fixes and set(fixes_of(one)) == fixes]
    if len(told) != 1 or asked.scales or asked.delays:
        return None
    share, here = told[0].recoverable_wall_ns / max(replays.actual_wall_ns, 1), result.saved_share
    if f"{100 * share:.1f}" == f"{100 * here:.1f}":
        return None
    return (
        f"The finding says {100 * share:.1f} %: it mends what it found, in its steps, with the pauses that go with it. "
        f"Here, as in taut whatif, all work of {', '.join(sorted(fixes))} is at its reference: {100 * here:.1f} %."
    )


def _policy_note(replays: Replays, asked: Question, result: WhatIfResult) -> str | None:
    """The same of a policy alone: a finding tells what it saves after the other findings are mended."""
    findings, here = replays.run.result.findings, _beside(result)
    told = next((one for one in findings if one.policy is not None and [one.policy.name] == list(asked.policies)), None)
    if told is None or asked.fixes or asked.scales or asked.delays or len(findings) < 2:
        return None
    share = told.recoverable_wall_ns / max(replays.actual_wall_ns, 1)
    if f"{100 * share:.1f}" == f"{100 * here:.1f}":
        return None
    return (
        f"The finding says {100 * share:.1f} %: what the policy saves once the other findings are mended. "
        f"Here, as in taut whatif, nothing is mended before: {100 * here:.1f} %."
    )


def _saved(result: WhatIfResult) -> float:
    """What changes save, and after them the policy, where one is asked for; of several each is by itself."""
    return 1 - (1 - result.saved_share) * (1 - _beside(result))


def _beside(result: WhatIfResult) -> float:
    """What the only policy saves after the changes."""
    policies = result.policies or []
    return float(policies[0].saved_share.value) if len(policies) == 1 else 0.0


def _regime(replays: Replays, asked: Question, result: WhatIfResult) -> Regimes:
    """The regime before and after: of a policy its own; mending a finding leaves it, because it is that of all mended."""
    known = replays.run.result.regime
    now = None if known is None else known.kind
    if result.policies:
        return result.policies[0].regime if len(result.policies) == 1 else Regimes(without=now, with_=None)
    mended = {one for finding in replays.run.result.findings for one in fixes_of(finding)}
    same = not asked.scales and {f"{key}={label}" for key, label in asked.fixes} <= mended
    return Regimes(without=now, with_=now if same else replays.regime(asked))


def _ratio(replays: Replays, asked: Question, result: WhatIfResult) -> float | None:
    """Ideal over changed time, both without gaps; unknown where the ideal itself is changed, or beaten."""
    whatif = replays.run.result.whatif
    if whatif is None or {"work", "bandwidth"} & asked.scales.keys():
        return None
    changes, beside = replays.changes(asked), _beside(result)
    wall = (replay(replays.graph, changes, gaps=False).wall_ns if changes else whatif.actual_wall_ns) * (1 - beside)
    beaten = (bool(changes) or beside > 0) and wall < whatif.ideal_wall_ns
    return None if beaten or wall <= 0 else round(whatif.ideal_wall_ns / wall, 6)
