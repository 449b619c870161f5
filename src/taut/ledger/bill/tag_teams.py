"""Whose charges are, as the tags of a bill say: for what belongs to no job."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pyarrow as pa

from taut.core.array_types import Texts
from taut.ledger.bill.hosts import TAG_PREFIX

KEYS = ("team", "costcenter", "department", "project", "owner")
"""Tags that name who is shown a charge, the best first; without case, signs and the prefixes of exporters."""
_SIGNS = re.compile(r"[^a-z]")


def tag_teams(charges: pa.Table) -> Texts:
    """The team of each charge; empty where no tag names one."""
    tags = charges["Tags"].combine_chunks()
    coded = tags if hasattr(tags, "indices") else tags.dictionary_encode()
    words = np.array([*(_team(text) for text in coded.dictionary.to_pylist()), ""], dtype=object)
    index = coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)
    found: Texts = words[index]
    return found


def _team(text: str | None) -> str:
    """The team that one set of tags names; empty for none, and for what is no object."""
    try:
        tags = msgspec.json.decode(text or "{}", type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return ""
    named = {_SIGNS.sub("", TAG_PREFIX.sub("", key).lower()): value for key, value in tags.items()}
    return next((value for key in KEYS if isinstance(value := named.get(key), str) and value), "")
