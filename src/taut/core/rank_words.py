"""How people name a rank: its number, and beside it what finds it in a machine room, its host and its accelerator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from taut.core.tables import Table

MOST_NAMED = 4
"""Ranks of a list that are named; the others are counted."""
LONGEST_HOST = 24
"""Longer names of hosts (ids of boots and containers) are cut."""
_ADDRESS = re.compile(r"[\d.]+|.*:.*")


def short_host(host: str) -> str:
    """A host without its domain; an address stays as it is."""
    name = host if _ADDRESS.fullmatch(host) else host.split(".", 1)[0] or host
    return name if len(name) <= LONGEST_HOST else f"{name[: LONGEST_HOST - 1]}…"


def place_words(host: str | None, gpu: int | None, name: str = "") -> str:
    """What is known of where a rank is: ``gpu-17, GPU 1``."""
    words = [name, short_host(host) if host else "", f"GPU {gpu}" if gpu is not None and gpu >= 0 else ""]
    return ", ".join(filter(None, words))


def rank_label(rank: int, members: Table) -> str:
    """``rank 137 (gpu-17, GPU 1)``: only what is known."""
    return f"rank {_placed(rank, members)}"


def rank_labels(ranks: Iterable[int], members: Table) -> str:
    """Several ranks in one phrase, the first of them named."""
    words = [_placed(rank, members) for rank in ranks]
    return f"{'rank' if len(words) == 1 else 'ranks'} {listed(words)}"


def listed(words: Sequence[str]) -> str:
    """``1, 2, 3, 4 and 60 more``: a list that stays short."""
    more = len(words) - MOST_NAMED
    if more <= 1:  # naming one more takes no more room than counting it
        return ", ".join(words)
    return f"{', '.join(words[:MOST_NAMED])} and {more:,} more"


def _placed(rank: int, members: Table) -> str:
    at = int(np.searchsorted(members.rank, rank))
    if at == len(members) or members.rank[at] != rank:
        return str(rank)
    where = place_words(members.host[at], int(members.gpu[at]), members.name[at])
    return f"{rank} ({where})" if where else str(rank)
