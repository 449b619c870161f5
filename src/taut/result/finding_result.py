"""A finding in the words of ``--json``."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from taut.core.tables import Table
from taut.diagnose.finding import Finding as Diagnosed
from taut.result.remedy import remedy
from taut.result.types import Estimate, Finding, Money


def finding_result(
    f: Diagnosed, money: Money | None = None, members: Table | None = None, share: Estimate | None = None
) -> Finding:
    """A finding without the changes that mend it; ``members`` tell where its ranks are, ``share`` what mending saves."""
    hosts, gpus = _places(f.ranks, members) if members is not None else ([], [])
    nobody = f.structure
    found = Finding(
        id=f.id,
        mode=f.mode,
        ranks=list(f.ranks),
        hosts=hosts,
        gpus=gpus,
        where=f.where or None,
        links=list(f.links),
        stages=list(f.stages),
        classes=list(f.classes),
        steps=f.steps,
        lost_rank_ns=f.lost_rank_ns,
        recoverable_wall_ns=f.recoverable_wall_ns,
        recoverable_share=share,
        confidence=f.confidence,
        because=f.because,
        alternatives=list(f.alternatives),
        reference=f.reference,
        money=money,
        loss_share=None if nobody is None else nobody.loss_share,
        amplification=None if nobody is None else nobody.amplification,
        growth=None if nobody is None else nobody.growth,
        origins=None if nobody is None else nobody.origins,
        policy=None if nobody is None else nobody.policy,
    )
    return found if members is None else replace(found, remedy=remedy(found, members))


def _places(ranks: Sequence[int], members: Table) -> tuple[list[str | None], list[int | None]]:
    """Host and accelerator of each rank, None where they are not known; nothing where none is."""
    row = {rank: at for at, rank in enumerate(members.rank.tolist())}
    at = [row.get(rank) for rank in ranks]
    hosts = [(members.host[i] or None) if i is not None else None for i in at]
    gpus = [int(members.gpu[i]) if i is not None and members.gpu[i] >= 0 else None for i in at]
    return hosts if any(hosts) else [], gpus if any(gpu is not None for gpu in gpus) else []
