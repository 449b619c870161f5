"""Structural instability: loss at gates that nobody carries, which a policy recovers and no repair does.

With the other findings mended, the regime is not stable, what residuals cost is worth listing, and nobody carries half of it:
the 95 % upper bound of what a rank, a host or all transfers cause, beyond what they would if they were like the others, is
below one half. A null that is not rejected proves nothing, so that share is bounded; with too few episodes for that nothing is
claimed, and ``Undecided`` says how many steps would tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import word_ids
from taut.core.interval import share_of
from taut.core.rank_words import rank_label
from taut.core.reporting import LISTED_SHARE, spell
from taut.diagnose.finding import Evidence, Finding, recovered, top_classes
from taut.diagnose.job_regime import PAYS, mended, regime
from taut.diagnose.rank_growth import Units, growth, rarest_seen, regime_of_residuals, units
from taut.diagnose.rank_residuals import Residuals, residuals
from taut.diagnose.slow_sets import shared_place
from taut.graph import Graph
from taut.replay.timeline import Change
from taut.result.types import Estimate, Grown, Origins, Regime, StructuralPolicy

MODE, TRANSFERS = "structural instability", "transfers"
LEAST_EPISODES = 10.0
"""Episodes of equal cost that it takes to say that nobody carries it."""
CARRIES = 0.5
"""Whoever causes this share of the cost, beyond its part as one of all ranks, carries it."""
FALSE = 0.05
"""Chance of an upper bound that is too low, and of a host that is taken for the cause."""
CULPRIT = 0.01
"""Chance of a rank or host that is taken for the culprit of irregular delays."""
MOST_CULPRITS = 3
"""Ranks or hosts that are late time and again, and are taken out one after the other."""
SEVERAL = 5
"""Ranks that were each late for a short while: who of so many is at fault cannot be told if anybody is."""
PASSING = 8
"""A rank that is late for at most one in so many steps of the run is late for a short while …"""
ONCE_OR_TWICE = 2
"""… which it may be so often, and far apart."""
LOCAL_STEPS = 4
"""Steps from one meeting to the next of the policy that the finding is priced with: an assumption; ``taut whatif --advice``
tries others."""
LASTING = 1.5
"""Mean windows of an episode from which episodes are said to last."""
SHUFFLES, PERIODIC = 199, 0.01
"""Episodes are dealt anew to steps so often; they are periodic if so few of these are as even."""


class Carrier(Struct, frozen=True):
    """Who causes most of what residuals cost."""

    name: str
    share: float
    at_most: float
    """Upper bound of the share, 95 %."""
    rows: Ints
    """Its ranks, as indices; none for transfers."""
    chance: float
    """Of so large a share where all ranks are alike, corrected."""
    alike: float
    """The share of the ranks that it is."""

    @property
    def caused(self) -> float:
        """What of the cost mending it would take away."""
        return beyond_alike(self.share, self.alike)

    @property
    def bound(self) -> float:
        """Upper bound of that, 95 %."""
        return beyond_alike(self.at_most, self.alike)


class Structure(Struct, frozen=True):
    """What a structural instability is made of."""

    loss_share: Estimate
    """Share of the wall that residuals cost."""
    amplification: float
    """What the whole job loses for each rank-second that a rank strays by, on average over ranks."""
    carried: Carrier
    origins: Origins | None
    growth: list[Grown] | None
    policy: StructuralPolicy | None
    saved_share: Estimate | None
    """Share of the wall that the policy saves."""
    rarest_seen: int
    """One in so many steps of a unit: rarer hiccups would not have been seen."""
    regime: Regime
    """As references or residuals tell it, whichever leaves less."""


class Undecided(Struct, frozen=True):
    """Loss that may be nobody's, of which the run is too short to tell."""

    loss_share: Estimate
    episodes: float
    more_steps: int


def instability(evidence: Evidence, others: Sequence[Finding], pays: float = PAYS) -> tuple[list[Finding], Undecided | None]:
    """The other findings with this one among them where it holds, and what hinders it where the run is too short.

    A rank that was late in a few consecutive steps is a finding by itself. If there are many such, each on another rank, they
    are episodes of one instability: it stands in their place. A rank or host that causes most of the episodes is a finding of
    its own, mended before the rest is asked.
    """
    undecided: Undecided | None = None
    lasting = [one for one in others if not _passes(evidence, one)]
    for rest in (lasting, list(others)) if len(lasting) < len(others) else (lasting,):
        known = list(rest)
        found = _nobody(evidence, known, pays)
        while isinstance(found, Finding) and found.structure is None and len(known) < len(rest) + MOST_CULPRITS:
            known.append(found)
            found = _nobody(evidence, known, pays)
        if isinstance(found, Finding) and found.structure is not None:
            return [*known, found], None
        undecided = None if isinstance(found, Finding) else found
        if undecided is not None and len({rank for one in others if one not in rest for rank in one.ranks}) >= SEVERAL:
            return known, undecided
    return known, undecided


def _passes(evidence: Evidence, finding: Finding) -> bool:
    """Whether a finding is about ranks that are late once or twice, for a short while."""
    first, last = np.searchsorted(evidence.graph.steps, finding.steps)
    late = int(last - first + 1)
    if finding.saved_ns is not None:
        held_up = finding.saved_ns > LISTED_SHARE * np.median(evidence.observed.window_ns)
        some = int(np.count_nonzero(np.diff(held_up.astype(np.int8), prepend=0) > 0))
        late = int(np.count_nonzero(held_up)) if some <= ONCE_OR_TWICE else late
    few = PASSING * late <= len(evidence.graph.steps)
    return bool(finding.ranks) and not finding.links and few and finding.mode == "straggler cascade"


def _nobody(evidence: Evidence, others: Sequence[Finding], pays: float) -> Finding | Undecided | None:
    """The finding with the others mended, what hinders it, or None where there is no such loss."""
    g = evidence.graph
    if len(g.ranks) < 2 or len(g.steps) < 2 or not len(g.gates):
        return None
    totals = evidence.blame.totals
    late = totals.wait_ns - totals.structural_ns
    if late < LISTED_SHARE * evidence.observed.wall_ns * (len(g.ranks) - 1):  # whoever is late is waited for by all others
        return None
    found = residuals(evidence, others)
    price = share_of(found.cost_ns, found.wall_ns)
    if price is None or price.value < LISTED_SHARE:
        return None
    host, follows = host_numbers(g), successive(g)
    parts = units(found, host, follows)
    told = worse(regime(evidence.batch, evidence.blame, others, pays), regime_of_residuals(found, parts, pays))
    if told.kind in (None, "stable"):
        return None
    origin, cost = _episodes(found, follows)
    telling = float(cost.sum() ** 2 / max((cost**2).sum(), 1.0))
    if telling < LEAST_EPISODES:
        more = int(np.ceil(len(g.steps) * (LEAST_EPISODES / max(telling, 1.0) - 1)))
        return Undecided(price, telling, max(more, 1))
    carried = _carries_most(g, host, origin, cost, telling)
    if carried.caused >= CARRIES and len(carried.rows) and carried.chance < CULPRIT:
        return _culprit(evidence, found, carried, others)
    if carried.name == TRANSFERS and carried.share >= CARRIES:
        return None
    if (price.lo or 0.0) < LISTED_SHARE:
        return None
    if carried.bound >= CARRIES:
        return Undecided(price, telling, _steps_to_bound(carried, telling, len(g.steps)))
    policy = _policy(evidence, others, float(found.wall_ns.sum()))
    structure = Structure(
        loss_share=price,
        amplification=_amplification(found, parts),
        carried=carried,
        origins=_origins(parts),
        growth=growth(found, parts, len(g.ranks)),
        policy=None if policy is None else policy[0],
        saved_share=None if policy is None else policy[1],
        rarest_seen=rarest_seen(parts),
        regime=told,
    )
    return _finding(evidence, found, structure)


def worse(one: Regime, other: Regime) -> Regime:
    """The regime that leaves less reserve; none where ``one``, which needs a full rendezvous, is not known."""
    if one.reserve is None or one.kind is None:
        return one
    return other if other.reserve is not None and other.reserve.value < one.reserve.value else one


def host_numbers(graph: Graph) -> Ints:
    """Host of every rank as a number, -1 where it is not known."""
    return np.asarray(word_ids(np.asarray(graph.members.host))[0], dtype=np.int64)


def successive(graph: Graph) -> Mask:
    """Whether each window follows the one before."""
    steps, segment = graph.steps, graph.segment
    out = np.zeros(len(steps), dtype=bool)
    out[1:] = (np.diff(steps) == 1) & (np.diff(segment) == 0)
    return out


def _episodes(found: Residuals, follows: Mask) -> tuple[Ints, Floats]:
    """(rank at the origin, cost) of every episode; transfers that took longer than usual are -1.

    A step belongs to the rank that strays most in it. What an ordinary step costs is nobody's, and is taken off.
    """
    origin = found.residual_ns.argmax(axis=0)
    cost = np.maximum(found.cost_ns - np.median(found.cost_ns), 0.0)
    new = np.concatenate([[True], ~follows[1:] | (np.diff(origin) != 0) | (cost[1:] == 0) | (cost[:-1] == 0)])
    number = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    ranks, costs = origin[first], np.bincount(number, weights=cost)
    longer = np.maximum(found.transfer_ns - np.median(found.transfer_ns), 0.0)
    held = longer > 0
    return np.concatenate([ranks, np.full(int(held.sum()), -1)]), np.concatenate([costs, longer[held]])


def _carries_most(graph: Graph, host: Ints, origin: Ints, cost: Floats, telling: float) -> Carrier:
    """The rank, host or set of transfers that carries most, by its bound."""
    whole, ranks = max(float(cost.sum()), 1.0), origin >= 0
    by_rank = np.bincount(origin[ranks], weights=cost[ranks], minlength=len(graph.ranks)) / whole
    moved, worst = float(cost[~ranks].sum()) / whole, int(by_rank.argmax())

    def carrier(name: str, share: float, rows: Ints, tested: int) -> Carrier:
        alike = len(rows) / len(graph.ranks)
        chance = min(1.0, tested * binomial_tail(share, telling, alike)) if len(rows) else 1.0
        return Carrier(name, share, upper_bound(share, telling), rows, chance, alike)

    rank = rank_label(int(graph.ranks[worst]), graph.members)
    found = [carrier(rank, float(by_rank[worst]), np.array([worst]), len(by_rank)),
             carrier(TRANSFERS, moved, np.array([], dtype=np.int64), 1)]  # fmt: skip
    if (host >= 0).all() and 1 < len(np.unique(host)) < len(host):
        names, by_host = np.asarray(graph.members.host), np.bincount(host, weights=by_rank)
        found += [
            carrier(f"host {names[host == h][0]}", float(by_host[h]), np.flatnonzero(host == h), len(by_host))
            for h in np.flatnonzero(by_host)
        ]
    # Of a host and its one rank that has it all, the rank.
    return max(found, key=lambda one: (one.bound if one.bound < CARRIES else CARRIES + one.caused, -len(one.rows)))


def _culprit(evidence: Evidence, found: Residuals, carried: Carrier, others: Sequence[Finding]) -> Finding | None:
    """The finding about a rank or host that is late time and again, and causes most of what residuals cost."""
    g = evidence.graph
    ops = np.flatnonzero(np.isin(g.rank_index, carried.rows))
    work, gap, why = np.minimum(found.work_ns, g.work_ns), np.minimum(found.gap_ns, g.gap_ns), f"{carried.name} like its peers"
    changes = Change(ops, "work", "set", work[ops], why), Change(ops, "gap", "set", gap[ops], why)
    before = [change for one in others for change in one.changes]
    saved = recovered(evidence, [*before, *changes]) - recovered(evidence, before)
    wall = evidence.observed.window_ns
    share = share_of(saved, wall)
    late = np.flatnonzero(np.isin(found.residual_ns.argmax(axis=0), carried.rows) & (saved > LISTED_SHARE * np.median(wall)))
    if share is None or (share.lo or 0.0) < LISTED_SHARE or not len(late):
        return None
    return Finding(
        mode="straggler cascade",
        ranks=tuple(int(rank) for rank in g.ranks[carried.rows]),
        where=shared_place(g, carried.rows.tolist()),
        classes=top_classes(g, ops, np.maximum(g.work_ns[ops] - found.work_ns[ops], 0)),
        steps=evidence.steps(int(late.min()), int(late.max())),
        lost_rank_ns=int(saved.sum()) * len(g.ranks),
        recoverable_wall_ns=int(saved.sum()),
        saved_ns=saved,
        confidence=1 - carried.chance,
        because=f"{carried.name} is late in {len(late)} of {len(wall)} steps, by "
        f"{spell(float(np.median(found.residual_ns.max(axis=0)[late])))}, and causes {100 * carried.share:.0f} % of what "
        f"irregular delays cost, with {len(carried.rows)} of {len(g.ranks)} ranks; the others wait for it",
        changes=changes,
        reference="peers",
    )


def beyond_alike(share: float, alike: float) -> float:
    """What of a share is more than it would be if these ranks, which are ``alike`` of all, were like the others."""
    return max((share - alike) / (1 - alike), 0.0) if alike < 1 else 0.0


def upper_bound(share: float, episodes: float) -> float:
    """95 % upper bound of a share of so many episodes of equal cost (Clopper and Pearson)."""
    from scipy.special import betaincinv

    hits = share * episodes
    return 1.0 if hits >= episodes else float(betaincinv(hits + 1, episodes - hits, 1 - FALSE))


def binomial_tail(share: float, episodes: float, expected: float) -> float:
    """Chance of so large a share of so many episodes, or a larger one, where this one is expected."""
    from scipy.special import betainc

    hits = share * episodes
    return 1.0 if hits <= 0 else float(betainc(hits, episodes - hits + 1, expected))


def _steps_to_bound(carried: Carrier, telling: float, steps: int) -> int:
    """How many steps more would bound such a share."""
    for times in np.geomspace(1.1, 1000, 40):
        if beyond_alike(upper_bound(carried.share, telling * times), carried.alike) < CARRIES:
            return int(np.ceil(steps * (times - 1)))
    return steps * 1000


def _finding(evidence: Evidence, found: Residuals, structure: Structure) -> Finding:
    policy, ranks = structure.policy, len(evidence.graph.ranks)
    return Finding(
        mode=MODE,
        steps=evidence.steps(0, len(evidence.graph.steps) - 1),
        lost_rank_ns=round(float(found.cost_ns.sum()) * ranks),
        recoverable_wall_ns=0 if policy is None else policy.saved_wall_ns,
        confidence=1 - FALSE,
        because=_because(structure),
        structure=structure,
    )


def _policy(evidence: Evidence, others: Sequence[Finding], wall_ns: float) -> tuple[StructuralPolicy, Estimate] | None:
    """What meeting less often would save once the others are mended; None where that cannot be replayed, or saves nothing."""
    from taut.replay.exact_policies import local_steps, measured  # few runs come here

    _, work, gap = mended(evidence.graph, evidence.blame, others)
    saved = local_steps(measured(evidence.graph, work, gap), LOCAL_STEPS).saved
    if saved is None or saved.value <= 0:
        return None
    return StructuralPolicy(name=f"local-steps={LOCAL_STEPS}", saved_wall_ns=round(saved.value * wall_ns)), saved


def _amplification(found: Residuals, parts: Units) -> float:
    """What the job loses ÷ what its ranks are late by on average: in episodes, where there are any."""
    late = parts.residual_ns * parts.late if parts.late.any() else np.maximum(parts.residual_ns, 0.0)
    delay = found.cost_ns + found.mean_ns
    cost = delay[parts.late.any(axis=0)] if parts.late.any() else delay
    return float(cost.sum() / max(late.mean(axis=0).sum(), 1.0))


def _origins(parts: Units) -> Origins | None:
    """What episodes look like; None where residuals are ordinary and none stands out."""
    if not len(parts.first):
        return None
    sizes = np.array(
        [parts.residual_ns[u, f : f + n].sum() for u, f, n in zip(parts.unit, parts.first, parts.length, strict=True)]
    )
    rate = len(parts.first) / parts.residual_ns.size
    return Origins(
        episodes=len(parts.first),
        rate_per_step=rate,
        duration_ns=float(np.median(sizes)),
        shape=", ".join(_shape(parts, sizes)),
        units="hosts" if parts.hosts else "ranks",
    )


def _shape(parts: Units, sizes: Floats) -> list[str]:
    lasts = float(parts.length.mean())
    words = [f"lasting {lasts:.1f} steps" if lasts >= LASTING else "single steps"]
    if _periodic(parts):
        words.append("periodic")
    if parts.hosts:
        words.append("together within hosts")
    low, middle, high = np.quantile(sizes, (0.1, 0.5, 0.9))
    # Of an exponential tail the 90 % quantile is 3.3 times the median; of episodes alike it is hardly more.
    words.append("a long tail" if high > 3 * middle else "of like size" if high < 1.5 * max(low, 1.0) else "of unlike size")
    return words


def _periodic(parts: Units, seed: int = 0) -> bool:
    """Whether the episodes of a unit come at more even distances than at random, pooled over units."""
    order = np.lexsort((parts.first, parts.unit))
    whose = parts.unit[order]
    same = whose[1:] == whose[:-1]
    apart = np.diff(parts.first[order])[same].astype(np.float64)
    if len(apart) < LEAST_EPISODES:
        return False

    def uneven(apart: Floats) -> float:
        return float(apart.std() / max(apart.mean(), 1.0))

    rng, windows = np.random.default_rng(seed), parts.residual_ns.shape[1]
    as_even = 0
    for _ in range(SHUFFLES):
        again = windows * rng.random(len(whose))
        again = np.diff(again[np.lexsort((again, whose))])[same]
        as_even += uneven(again) <= uneven(apart)
    return (1 + as_even) / (1 + SHUFFLES) <= PERIODIC


def _because(s: Structure) -> str:
    text = (
        f"waiting for whoever is late costs {_per_cent(s.loss_share)} of the wall clock, {s.amplification:.0f} times what "
        f"ranks are late on average; nobody carries it ({s.carried.name} most, {100 * s.carried.share:.0f} % of it, "
        f"surely below {100 * s.carried.at_most:.0f} %)"
    )
    if s.origins is not None:
        o = s.origins
        text += (
            f"; {o.episodes} episodes of {spell(o.duration_ns)}, one in {1 / max(o.rate_per_step, 1e-12):,.0f} steps of "
            f"{'a host' if o.units == 'hosts' else 'a rank'}, {o.shape}"
        )
    if s.growth is not None:
        text += "; with more ranks: " + ", ".join(f"{one.ranks:,} {_per_cent(one.loss_share)}" for one in s.growth[1:])
    else:
        text += f"; too few episodes to say how it grows, and a hiccup rarer than one in {s.rarest_seen:,} steps was not seen"
    if s.policy is not None and s.saved_share is not None:
        text += f"; meeting every {LOCAL_STEPS} steps only ({s.policy.name}) would save {_per_cent(s.saved_share)}"
    else:
        text += "; no policy can be replayed exactly on this run (taut whatif --advice says why)"
    return text


def _per_cent(e: Estimate) -> str:
    return f"{100 * e.value:.0f} %" + (f" ({100 * e.lo:.0f}–{100 * e.hi:.0f})" if e.lo is not None and e.hi is not None else "")
