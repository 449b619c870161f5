"""Where a finding is, in words: one wording for bills and briefings."""

from __future__ import annotations

from taut.result.types import Finding


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
