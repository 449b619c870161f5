"""Charges of another cluster: accounts, regions or pools of hosts of which no host is in the logs."""

from __future__ import annotations

import re

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.ids import numbered
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found, by_code, reported_only, whole
from taut.ledger.bill.hosts import NONE, host_tags, stem, tags_of
from taut.ledger.bill.money_units import amount

KIND = "another cluster"
BORDERS = ("BillingAccountId", "SubAccountId", "RegionId")
"""What one cluster lies inside."""
_CLUSTER = re.compile(r"cluster(?:name|id)?$|^(?:eks|gke|aks)cluster")
HOSTS = 3
"""So many resources of one pool, of a SKU that hosts of the logs have too, are a cluster and no stray machine."""


def find(rows: ChargeRows) -> list[Found]:
    """One defect if no resource meets a host; else one for each part of the bill that lies in another account or pool."""
    unmatched = rows.is_item("unmatched") & rows.kept & rows.in_period
    if not unmatched.any():
        return []
    if not rows.accelerator().any():
        return [_none(rows, np.flatnonzero(unmatched))]
    found = []
    for column in BORDERS:
        found += _beyond(rows, column, rows.v.words(column)[1], np.array(rows.v.words(column)[0], dtype=object))
    names, code = _clusters(rows)
    found += _beyond(rows, "the tag of the cluster", code, names)
    return found or _pools(rows)


def _none(rows: ChargeRows, some: Ints) -> Found:
    """Nothing to do with the logs: their charges stay where they are, as unmatched."""
    money = int(rows.effective[some].sum())
    because = (
        f"none of {rows.resource_count(some):,} resources with accelerators meets a host of the logs: "
        f"{amount(money, rows.unit)} stay unmatched"
    )
    return reported_only(KIND, some, because, money)


def _beyond(rows: ChargeRows, what: str, code: Ints, names: np.ndarray[tuple[int], np.dtype[np.object_]]) -> list[Found]:
    """Parts of the bill on the other side of a border: they have accelerators, none of which meets a host."""
    count = len(names)
    met = np.bincount(code[rows.accelerator()], minlength=count)
    away = np.bincount(code[rows.is_item("unmatched") & rows.kept], minlength=count)
    found = []
    for one in np.flatnonzero((met == 0) & (away > 0)).tolist():
        if names[one] is None or not str(names[one]).strip():
            continue
        some = np.flatnonzero((code == one) & rows.kept & rows.in_period)
        resources = rows.resource_count(some[rows.is_item("unmatched")[some]])
        because = f"{what} {str(names[one])[:80]}: none of {resources:,} resources with accelerators meets a host of the logs"
        found.append(whole(KIND, rows, some, because))
        rows.kept[some] = False
    return found


def _clusters(rows: ChargeRows) -> tuple[np.ndarray[tuple[int], np.dtype[np.object_]], Ints]:
    """The cluster that tags name; None for those that name none."""
    texts, code = rows.v.words("Tags")
    told = [next((value for key, value in tags_of(text) if _CLUSTER.search(key)), None) for text in texts]
    place: dict[str | None, int] = {}
    known = np.array([place.setdefault(one, len(place)) for one in told], dtype=np.int64)
    return np.array([*place, None], dtype=object)[: max(len(place), 1)], known[code]


def _pools(rows: ChargeRows) -> list[Found]:
    """Hosts called alike, of a SKU that ours have, none of which is in the logs."""
    ours = {stem(rows.hosts[one]) for one in np.unique(rows.host[rows.accelerator()]).tolist()}
    skus = rows.v.words("SkuId")[1]
    shared = np.isin(skus, np.unique(skus[rows.accelerator() & rows.v.there("SkuId")]))
    some = np.flatnonzero(rows.is_item("unmatched") & rows.kept & rows.in_period & shared)
    stems, code = _stems(rows, some)
    found = []
    for one, at in by_code(code):
        name, mine = stems[one], some[at]
        if name and name not in ours and rows.resource_count(mine) >= HOSTS:
            because = f"{rows.resource_count(mine):,} hosts called like {rows.resources(mine[:1])} are in no log"
            found.append(whole(KIND, rows, mine, because))
    return found


def _stems(rows: ChargeRows, some: Ints) -> tuple[list[str], Ints]:
    """What the names of hosts share, per charge; empty where a charge names no host."""
    names, name = rows.v.words("ResourceName")
    tags, tag = rows.v.words("Tags")
    pair, count = numbered(name[some], tag[some])
    first = np.zeros(count, dtype=np.int64)
    first[pair] = some
    place: dict[str, int] = {}
    code = np.zeros(count, dtype=np.int64)
    for i, row in enumerate(first.tolist()):
        called = names[name[row]] or next(iter(host_tags(tags[tag[row]])), "")
        code[i] = place.setdefault(stem(called or ""), len(place))
    return list(place), code[pair]


def like_ours(rows: ChargeRows) -> list[str]:
    """Give unmatched resources that are called like hosts of the logs a host of their own: nobody held it all the time."""
    met = rows.accelerator()
    ours = {stem(rows.hosts[one]) for one in np.unique(rows.host[met]).tolist()}
    some = np.flatnonzero(rows.is_item("unmatched") & rows.kept & _as_ours(rows, met))
    names, name = rows.v.words("ResourceName")
    added: list[tuple[str, Ints]] = []
    for one, at in by_code(name[some]):
        called = names[one] or ""
        if any(letter.isdigit() for letter in called) and stem(called) in ours:
            added.append((called, some[at]))
    rows.become(added)
    return [called for called, _ in added]


def _as_ours(rows: ChargeRows, met: Mask) -> Mask:
    """Charges in an account in which hosts of the logs are charged."""
    found = np.ones(len(rows), dtype=np.bool_)
    for column in BORDERS:
        code = rows.v.words(column)[1]
        found &= np.isin(code, np.unique(code[met]))
    found &= rows.host == NONE
    return found
