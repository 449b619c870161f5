"""What a charge is for: an item of the bill, by its category, class, service and unit; and how many hours of it."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.ledger.bill.hosts import NONE
from taut.read.focus.focus_charged import Charged

ITEM_WORDS = (
    "accelerator time", "idle accelerators", "unused commitment", "storage", "network", "other service", "tax", "purchase",
    "correction", "credit", "rounding", "unmatched",
)  # fmt: skip
"""Items that charges are booked as; a code is an index into these. All are words of ``categories.ITEMS``."""
CODE = {item: code for code, item in enumerate(ITEM_WORDS)}
SERVICES = {"Storage": "storage", "Networking": "network"}
COMPUTES = ("Compute", "AI and Machine Learning")
_ACCELERATOR = re.compile(
    r"(?<![a-z])gpus?(?![a-z0-9])|gpu[\s_-]?hours?|accelerator|nvidia|\b(?:dgx|hgx|tpu|trainium|inferentia|gaudi|instinct|tesla|radeon)|"
    r"(?<![a-z0-9])(?:[abhv]\d00|gb?[23]00|l40s?|l4|t4|p100|a10g?|mi\d{3}x?|rtx)(?![a-z0-9])|"
    r"(?<![a-z0-9])(?:p[2-6][a-z-]*|g[3-7][a-z]*|trn\d[a-z]*|inf\d|dl[12]q?)\.\d*[a-z]+|"
    r"(?<![a-z0-9])(?:a[2-4]|g[24])-(?:high|mega|ultra|edge|standard)|standard_n[cdgv]|(?<![a-z0-9])n[cdv]\d+",
    re.IGNORECASE,
)
_COUNT_KEYS = frozenset({"gpucount", "gpus", "acceleratorcount", "accelerators", "numberofgpus", "gpu", "xgpucount"})
_COUNT = re.compile(
    r"(?<![\d.])(\d{1,3})\s{0,3}(?:x|×|\*)?\s{0,3}(?:(?:nvidia|amd)\s{0,3})?(?:gpus?|accelerators?|[abhv]\d00|gb?[23]00|l40s?|mi\d{3}x?)\b",
    re.IGNORECASE,
)
_UNIT = re.compile(
    r"^\s{0,9}(\d{1,12}(?:\.\d{1,12})?)?\s{0,9}(.{0,60}?)[\s._-]{0,9}(seconds?|secs?|s|minutes?|mins?|hours?|hrs?|h|days?)\s{0,9}$",
    re.IGNORECASE,
)
_HOURS = {"s": 1 / 3600, "m": 1 / 60, "h": 1.0, "d": 24.0}
_OF_HOST = frozenset(
    {"", "instance", "vm", "virtualmachine", "node", "host", "machine", "server", "compute", "instances", "usage"}
)
_OF_EACH = frozenset({"gpu", "gpus", "accelerator", "accelerators", "chip", "device", "card", "tpu"})
_STORED = re.compile(r"\bg(?:i)?b[\s-]*(?:mo|month)|iops|snapshot|volume|disk", re.IGNORECASE)
_MOVED = re.compile(
    r"^\s{0,9}[\d.]{0,24}\s{0,9}(?:[kmgtp]i?b|bytes?|gigabytes?|terabytes?)\s{0,9}$|data.?transfer|egress|bandwidth",
    re.IGNORECASE,
)

HOST, EACH, UNKNOWN = 0, 1, 2
"""What the hours of a charge count: those of the host, those of each of its accelerators, or something else."""


def item_codes(v: Charged, host: Ints) -> Ints:
    """The item of every charge; accelerator charges that meet no host are ``unmatched``."""
    code = np.full(len(host), CODE["other service"], dtype=np.int64)
    for service, item in SERVICES.items():
        code[v.is_("ServiceCategory", service)] = CODE[item]
    computes = v.is_("ServiceCategory", *COMPUTES) | v.null("ServiceCategory")
    stored, moved = _units_like(v, _STORED), _units_like(v, _MOVED)
    code[computes & stored], code[computes & moved] = CODE["storage"], CODE["network"]
    counted = computes & ~stored & ~moved & ((host != NONE) | named_accelerators(v, host))
    code[counted] = np.where(host[counted] != NONE, CODE["accelerator time"], CODE["unmatched"])
    code[v.is_("CommitmentDiscountStatus", "Unused") | v.is_("CapacityReservationStatus", "Unused")] = CODE["unused commitment"]
    # Bought in advance, and used up elsewhere; a subscription, or a host by the month, is a service like others.
    code[v.is_("ChargeCategory", "Purchase") & (v.there("CommitmentDiscountId") | (v.number("EffectiveCost") == 0))] = CODE[
        "purchase"
    ]
    for category, item in (("Tax", "tax"), ("Credit", "credit"), ("Adjustment", "correction")):
        code[v.is_("ChargeCategory", category)] = CODE[item]
    code[v.correction()] = CODE["correction"]
    return code


def named_accelerators(v: Charged, host: Ints) -> Mask:
    """Charges whose SKU, or another of the same SKU that met a host, tells of accelerators."""
    counts = accelerator_counts(v)
    found = counts > 0
    for column in ("SkuMeter", "ResourceType", "SkuId", "ChargeDescription", "ConsumedUnit", "PricingUnit"):
        found |= v.where(column, lambda text: bool(text) and _ACCELERATOR.search(text or "") is not None)
    texts, sku = v.words("SkuId")
    of_hosts = np.zeros(len(texts), dtype=np.bool_)
    of_hosts[sku[host != NONE]] = True
    of_hosts[-1] = False  # those without a SKU have none in common
    return found | (of_hosts[sku] & v.is_("ServiceCategory", *COMPUTES))


def accelerator_counts(v: Charged) -> Ints:
    """Accelerators of one unit of each charge's SKU, as its details or words tell; 0 where they do not."""
    found = np.zeros(v.table.num_rows, dtype=np.int64)
    for column, read in (
        ("SkuPriceDetails", _detailed),
        ("SkuMeter", _counted),
        ("ResourceType", _counted),
        ("ChargeDescription", _counted),
    ):
        texts, code = v.words(column)
        told = np.array([read(text) for text in texts], dtype=np.int64)
        found = np.where(found > 0, found, told[code])
    return found


def charged_hours(v: Charged) -> tuple[Floats, Ints]:
    """Hours that each charge is for, NaN where its unit is none of time, and what they are hours of (HOST, EACH)."""
    hours = np.full(v.table.num_rows, np.nan)
    each = np.full(v.table.num_rows, UNKNOWN, dtype=np.int64)
    for quantity, unit in (("ConsumedQuantity", "ConsumedUnit"), ("PricingQuantity", "PricingUnit")):
        texts, code = v.words(unit)
        known = [_unit(text) for text in texts]
        per, kind = np.array([one[0] for one in known])[code], np.array([one[1] for one in known], dtype=np.int64)[code]
        new = (each == UNKNOWN) & (kind != UNKNOWN) & ~np.isnan(v.number(quantity))
        hours[new], each[new] = (v.number(quantity) * per)[new], kind[new]
    return hours, each


def _unit(text: str | None) -> tuple[float, int]:
    """Hours of one unit, and what they are hours of."""
    match = _UNIT.match(text or "")
    if not match:
        return float("nan"), UNKNOWN
    of = re.sub(r"[^a-z]", "", match[2].lower())
    kind = EACH if of in _OF_EACH else HOST if of in _OF_HOST else UNKNOWN
    return float(match[1] or 1) * _HOURS[match[3][0].lower()], kind


def _units_like(v: Charged, pattern: re.Pattern[str]) -> Mask:
    found = np.zeros(v.table.num_rows, dtype=np.bool_)
    for column in ("ConsumedUnit", "PricingUnit"):
        found |= v.where(column, lambda text: bool(text) and pattern.search(text or "") is not None)
    return found


def _detailed(text: str | None) -> int:
    """The count of accelerators in the details of a SKU's price."""
    if not text or text[:1] != "{":
        return 0
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return 0
    told = (value for key, value in found.items() if re.sub(r"[^a-z]", "", key.lower()) in _COUNT_KEYS)
    return next((count for value in told if (count := _whole(value))), 0)


def _whole(value: object) -> int:
    try:
        count = float(value) if isinstance(value, int | float | str) else 0.0
    except ValueError:
        return 0
    return int(count) if 0 < count <= 1024 and count == int(count) else 0


def _counted(text: str | None) -> int:
    """The count of accelerators that a text names, if it names one."""
    found = {int(match) for match in _COUNT.findall(text or "")}
    return found.pop() if len(found) == 1 and 0 not in found else 0
