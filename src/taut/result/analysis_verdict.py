"""The answer to an analysis in a sentence or two, its class, and what the time is bound by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.core.device_words import is_copy
from taut.core.ids import weighed
from taut.core.rank_words import listed, rank_label, rank_labels
from taut.core.reporting import LISTED_SHARE
from taut.core.tables import Kind
from taut.diagnose.failed_spans import failed_spans, failed_text
from taut.diagnose.finding import Finding as Diagnosed
from taut.diagnose.instability import Structure
from taut.graph import Graph
from taut.result.computed import Computed
from taut.result.nominal_share import host_only
from taut.result.quiet_doubts import quiet_doubts
from taut.result.savings import Saving, savings
from taut.result.types import Bound, ControlResult, Verdict, VerdictClass

if TYPE_CHECKING:
    from taut.diagnose.unequal_ranks import Unequal

CALLED = "collectives called without a device event"

BOUNDS: dict[Bound, tuple[str, ...]] = {
    "compute": ("productive", "slow compute", "discarded"),
    "communication": ("exposed transfer", "communication undivided"),
    "copy": ("exposed copy",),
    "synchronisation": ("fault wait", "jitter wait", "structural wait"),
    "host": ("gap", "control overhead"),
}
"""What rank time is bound by, by the fates that say so."""
NO_BOUND = ("unexplained", "unobserved", "idle")
"""Fates that say nothing of it."""


def _bound(fates: dict[str, int]) -> Bound:
    """What the rank-time is bound by."""
    spent = {bound: sum(fates[fate] for fate in some) for bound, some in BOUNDS.items()}
    return max(spent, key=lambda bound: spent[bound])


def analysis_verdict(a: Computed, explained: float, controlled: ControlResult | None, beside: str | None) -> Verdict:
    """The answer in a sentence or two, its class, and what the time is bound by."""
    g, fates = a.graph, a.ledger.by_fate
    share = {k: 100 * v / max(a.ledger.total_rank_ns, 1) for k, v in fates.items()}
    doubt = (
        "" if explained >= 0.5 else f" Only {100 * explained:.0f} % of starts are explained by an edge: treat this as a guess."
    )
    largest = savings(a)
    text, kind = _fought(a, controlled, largest) or _culprit(a, largest) or _nobody_found(a, share, explained)
    failed = failed_spans(g.trace)
    if failed:  # what fails comes before what is slow
        text, kind = f"{failed_text(failed)} {text}", "component" if kind == "healthy" else kind
    bound = None if host_only(g) else _bound(fates)
    return Verdict(text=text + doubt, kind=kind, bound=bound, components=beside)


Answer = tuple[str, VerdictClass]
"""A verdict in words, and its class."""


def _culprit(a: Computed, largest: list[Saving]) -> Answer | None:
    """Who holds the job up: whoever stopped it, else the finding that saves most; None without a finding."""
    if not a.findings:
        return None
    first = a.findings[0]
    by = next(s for s in largest if s.finding is not None and (first.mode != "hang" or s.finding is first))
    return _found(a, by, largest), by.kind


def _nobody_found(a: Computed, share: dict[str, float], explained: float) -> Answer:
    """Why there is no finding: nothing could be compared, it is how the job is made, or nothing is wrong."""
    g = a.graph
    if len(g.ranks) == 1:
        return _alone(a, share), "unknown" if g.trace.world_size != 1 else "healthy"
    if why := why_no_gate(g):
        return _unmatched(a, share, why), "unknown"
    if explained < 0.5:
        return "Unknown.", "unknown"
    if share["structural wait"] >= STRUCTURAL:
        text = (
            f"No culprit: {share['structural wait']:.0f} % of the bill is structural waiting {_structure(a)}, "
            f"{share['jitter wait']:.0f} % jitter. {_worst_stage(a)}"
        )
        return text.strip(), "structural"
    return _nothing_wrong(a, share)


def _nothing_wrong(a: Computed, share: dict[str, float]) -> Answer:
    """That nothing is wrong, with what speaks against it."""
    doubts = quiet_doubts(a, share)
    # Whoever is slower for good is waited for: without waiting nothing is to be dealt otherwise.
    apart = _apart(a.graph) if share["jitter wait"] + share["fault wait"] >= 100 * LISTED_SHARE / 2 else None
    said = [] if apart is None else [_unequal(apart)]
    text = " ".join([_quiet(a, share, not doubts and not said), *said, *doubts])
    return text, "unknown" if doubts else "structural" if apart is not None and not apart.ordinary else "healthy"


def _fought(a: Computed, controlled: ControlResult | None, largest: list[Saving]) -> Answer | None:
    """What controllers did to the job, where without them most would be saved and nothing hangs."""
    if controlled is None or any(f.mode == "hang" for f in a.findings):
        return None
    if not largest or largest[0].kind != "control" or largest[0].least < LISTED_SHARE:
        return None
    from taut.ledger.zones import control_verdict

    text = control_verdict(controlled, a.ledger)
    return (text, "control") if text else None


STRUCTURAL = 5
"""Per cent of the bill in structural wait from which the verdict says structural."""


def _structure(a: Computed) -> str:
    """What structural waiting is: callers wait for whom they call; else roles and pipelines."""
    if not a.graph.trace.waits_recorded:
        return "(imbalance between roles, pipeline bubble)"
    waits, members = a.blame.waits, a.graph.members
    by_rank = np.bincount(a.graph.rank_index[waits.opener], weights=waits.structural_ns, minlength=len(members))
    most = int(np.argmax(by_rank))
    return f"for calls, {100 * by_rank[most] / max(by_rank.sum(), 1):.0f} % of it for {members.name[most]}"


def _found(a: Computed, by: Saving, largest: list[Saving]) -> str:
    f = by.finding
    assert f is not None
    others = [s for s in largest if s is not by and s.least >= LISTED_SHARE]
    more = _also(a, others) or (f" {len(a.findings) - 1} more below." if len(a.findings) > 1 else "")
    if f.mode == "hang":
        if not f.ranks:
            return f"Hang: the job stands still, and the dumps do not tell who stopped.{more}"
        stopped = rank_labels(f.ranks, a.graph.members)
        return f"Hang: {stopped} stopped, and the others wait for {'them' if len(f.ranks) > 1 else 'it'}.{more}"
    if f.structure is not None:
        return f"{_nobody(f.structure, len(a.graph.ranks), len(a.findings) > 1)}{more}"
    verb = "hold" if len(f.links) > 1 or (len(f.ranks) > 1 and not f.links and not f.where) else "holds"
    gain, whole = (100 * ns / max(a.observed.wall_ns, 1) for ns in (f.recoverable_wall_ns, a.recoverable_wall_ns))
    together = f", fixing all {whole:.1f} %" if whole - gain >= 100 * LISTED_SHARE else ""
    return (
        f"{f.mode.capitalize()}: {_place(f, a.graph)} {verb} the job up in steps {f.steps[0]}–{f.steps[1]}. "
        f"Fixing it recovers {gain:.1f} % of the wall clock{together}.{more}"
    )


MOST_NAMED = 3
"""Further savings that a verdict names; the others are counted."""


def _also(a: Computed, others: list[Saving]) -> str:
    """The other savings that are surely worth listing, each with what it saves."""
    named = [f"{_called(s, a.graph)} ({100 * s.share.value:.1f} %)" for s in others[:MOST_NAMED]]
    if len(others) > MOST_NAMED:
        named.append(f"{len(others) - MOST_NAMED} more")
    return f" Also: {', '.join(named)}." if named else ""


def _called(s: Saving, g: Graph) -> str:
    if s.finding is None:
        return "controllers' actions"
    if s.finding.structure is not None:
        return f"{s.finding.mode}, which nobody causes"
    return f"{s.finding.mode} at {_place(s.finding, g)}"


def _nobody(s: Structure, ranks: int, beside: bool) -> str:
    """Loss without a culprit, how it grows and what would recover it."""
    loss, name = s.loss_share, s.carried.name
    text = (
        f"Structural instability: {'with the other findings mended, ' if beside else ''}no rank, host or link is at fault. "
        "Waiting for whoever is late costs "
        f"{100 * loss.value:.0f} % of the wall clock"
    )
    if s.growth:
        far = s.growth[-1]
        text += f" on {ranks} ranks, and would cost {100 * far.loss_share.value:.0f} % on {far.ranks:,}"
    text += f"; the largest share of that, {name}'s, is {100 * s.carried.share:.0f} %."
    if s.policy is not None and s.saved_share is not None:
        text += f" No repair would help; meeting less often ({s.policy.name}) would recover {100 * s.saved_share.value:.1f} %."
    return text


def _place(f: Diagnosed, g: Graph) -> str:
    """Where a finding is, in the words of a sentence: links, ranks, stages, or what all ranks do."""
    if f.links:
        return f"link {' and '.join(f.links)}"
    if f.ranks and f.where:
        return f"{f.where} (rank{'s' if len(f.ranks) > 1 else ''} {listed([*map(str, f.ranks)])})"
    if f.ranks:
        return rank_labels(f.ranks, g.members)
    return f"stage {', '.join(map(str, f.stages))}" if f.stages else f"{f.classes[0]} on all ranks" if f.classes else "the job"


def _alone(a: Computed, share: dict[str, float]) -> str:
    world = a.graph.trace.world_size
    what = "operators on the host (the device's side is not recorded)" if host_only(a.graph) else "compute"
    text = f"One rank{f' of {world}' if world else ''}: {share['productive'] + share['slow compute']:.0f} % {what}, "
    text += _copies(share)
    if world == 1 or (world is None and not _communicates(a.graph)):
        return text + f"{share['gap']:.0f} % gaps on the host."
    return text + (
        f"{share['communication undivided']:.0f} % exposed communication (waiting included, an upper bound), "
        f"{share['gap']:.0f} % gaps on the host. Who is waited for needs the traces of all ranks."
    )


def _communicates(g: Graph) -> bool:
    """Whether any op communicates with other ranks."""
    copies = is_copy(g.names)[g.ops.name]
    return bool(((g.ops.kind == Kind.COMMUNICATE) & ~copies).any())


def _copies(share: dict[str, float]) -> str:
    """Copies between host and device that nothing hides, where they are a share worth a word."""
    return f"{share['exposed copy']:.0f} % exposed copies, " if share["exposed copy"] >= 0.5 else ""


def _unmatched(a: Computed, share: dict[str, float], why: str) -> str:
    """Ranks that meet nowhere, as far as the traces tell."""
    return (
        f"Unknown: {len(a.graph.ranks)} ranks, but {why}, so who waits for whom cannot be told. "
        f"{share['productive'] + share['slow compute']:.0f} % compute, {share['exposed copy']:.0f} % exposed copies, "
        f"{share['gap']:.0f} % gaps."
    )


def _quiet(a: Computed, share: dict[str, float], ordinary: bool) -> str:
    waiting = 100 * (a.blame.totals.wait_ns - a.ledger.hidden_wait_rank_ns) / max(a.ledger.total_rank_ns, 1)
    what = "in operators on the host (the device's side is not recorded)" if host_only(a.graph) else "productive"
    text = (
        f"No finding: {share['productive']:.0f} % {what}, {_copies(share)}{share['gap']:.0f} % gaps and waits for them; "
        f"in all {waiting:.0f} % waiting at gates"
    )
    totals = a.blame.totals
    if totals.gap_ns > 0.5 * totals.wait_ns and waiting >= 1:
        by_rank = weighed(a.graph.rank_index[a.blame.gap.ops], a.blame.gap.ns, len(a.graph.ranks))
        worst = int(np.argmax(by_rank))
        part = 100 * by_rank[worst] / max(totals.wait_ns, 1)
        where = rank_label(int(a.graph.ranks[worst]), a.graph.members)
        text += f", {part:.0f} % of it for gaps of the host (launch, input) on {where}"
    elif totals.unexplained_ns > 0.5 * totals.wait_ns and waiting >= 1:
        text += ", most of it unexplained: too few steps to know what is ordinary"
    elif ordinary:
        text += ", all of it ordinary variation or structure"
    return text + "."


def _apart(graph: Graph) -> Unequal | None:
    from taut.diagnose.unequal_ranks import unequal_ranks  # with policies, which few runs need

    return unequal_ranks(graph)


def _unequal(u: Unequal) -> str:
    """Ranks of like work that take unlike times for good, and what dealing work by speed would save."""
    as_usual = ", as devices of one model may be" if u.ordinary else ", more than devices of one model are"
    spread, saved = (100 * one.value for one in (u.spread, u.saved_share))
    return f"Ranks are unequal for good by {spread:.0f} %{as_usual}: work dealt by speed would save up to {saved:.0f} %."


def _worst_stage(a: Computed) -> str:
    """The stage that is too long, if one clearly is."""
    stages = sorted(((v, k) for k, v in a.whatif.by.get("stage", {}).items()), reverse=True)
    if len(stages) < 2 or stages[0][0] < 1.02 or stages[0][0] - 1 < 2 * (stages[1][0] - 1):
        return ""
    return f"Stage {stages[0][1]} is the longest: alone it slows the job by {100 * (stages[0][0] - 1):.0f} %."


def why_no_gate(g: Graph) -> str:
    """Why no two ranks of a job meet anywhere in its graph; empty where some do, and where there is nobody to meet."""
    if len(g.ranks) < 2 or g.trace.waits_recorded or (len(g.gates) and int(g.gates.members.max()) > 1):
        return ""
    ops = g.ops
    has_verb = ops.verb > 0
    if not has_verb.any():
        if g.counts.get(CALLED):
            return "collectives were called, but no event says when they ran"
        moves = (ops.kind == Kind.COMMUNICATE) & ~np.append(is_copy(g.names), False)[ops.name]
        if moves.any():
            return "the traces do not say what their communication does, nor who takes part"
        return "no collective is in the traces"
    if (ops.group[has_verb] < 0).all() and (ops.peer[has_verb] < 0).all():
        return "the collectives do not name their group"
    present = set(g.ranks.tolist())
    used = {g.trace.groups[group] for group in np.unique(ops.group[has_verb]).tolist() if group >= 0}
    known = [g.trace.group_ranks[group] for group in used if group in g.trace.group_ranks]
    if known and len(known) == len(used) and all(len(present.intersection(ranks)) < 2 for ranks in known):
        return "every group of the collectives has one traced rank only"
    return "the collectives of a rank have no counterpart on the others"
