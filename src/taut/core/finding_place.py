"""Where a finding is, in words: one wording for bills and briefings; and in those of ``taut whatif --fix``."""

from __future__ import annotations

from taut.result.types import Finding

FIXABLE = ("straggler cascade", "silent degradation", "input stall", "checkpoint stall", "energy feedback loop")
"""Modes that setting a rank or a link to its reference mends."""


def place_of(finding: Finding) -> str:
    """Where a finding is: a set with a name, links, ranks with their hosts, stages; nothing where it has no place."""
    if finding.where:
        return finding.where
    if finding.links:
        return f"link {', '.join(finding.links[:3])}"
    hosts = [*finding.hosts, *[None] * len(finding.ranks)]
    ranks = [f"{rank} ({host})" if host else str(rank) for rank, host in zip(finding.ranks, hosts, strict=False)]
    more = f" and {len(ranks) - 3} more" if len(ranks) > 3 else ""
    if ranks:
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks[:3])}{more}"
    return f"stage {', '.join(map(str, finding.stages))}" if finding.stages else ""


def fixes_of(f: Finding) -> list[str]:
    """What ``--fix`` takes to mend a finding; nothing where setting parts to their reference does not mend it."""
    if f.mode not in FIXABLE or f.policy is not None:
        return []
    return [f"link={one}" for one in f.links] or [f"rank={one}" for one in f.ranks]
