"""What decision makers call it: fates and items of a bill under six categories, direct and hidden, beside useful work."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Kind = Literal["direct", "hidden", "useful"]


class Category(Struct, frozen=True):
    """One category: its name, its kind, and the fates whose accelerator time it holds."""

    name: str
    kind: Kind
    fates: tuple[str, ...] = ()


CATEGORIES: tuple[Category, ...] = (
    Category("useful work", "useful", ("productive", "kept", "recompute")),
    Category("re-runs and discarded work", "direct", (
        "discarded", "discarded at most", "unfinished", "restore", "detect+recover", "down",
    )),
    Category("SLA and deadlines", "direct"),
    Category("energy wasted", "direct"),
    Category("lower effective utilisation", "hidden", (
        "slow compute", "exposed copy", "exposed transfer", "communication undivided", "fault wait", "jitter wait",
        "structural wait", "gap", "unexplained", "control overhead", "hold/init", "checkpoint save",
    )),
    Category("operational complexity", "hidden"),
    Category("over-provisioning", "hidden", ("idle", "spare")),
    Category("not known", "hidden", ("unobserved",)),
    Category("services", "useful"),
    Category("corrections and credits", "useful"),
    Category("unmatched", "hidden"),
)  # fmt: skip
"""All categories in the order in which they are shown. Accelerator time goes by its fate, everything else by its item."""

ITEMS: dict[str, str | None] = {
    "accelerator time": None,
    "electricity": None,
    "cooling": None,
    "network energy": "energy wasted",
    "idle accelerators": "over-provisioning",
    "unused commitment": "over-provisioning",
    "SLA penalty": "SLA and deadlines",
    "delay": "SLA and deadlines",
    "triage hours": "operational complexity",
    "storage": "services",
    "network": "services",
    "other service": "services",
    "tax": "services",
    "purchase": "services",
    "correction": "corrections and credits",
    "credit": "corrections and credits",
    "rounding": "corrections and credits",
    "unmatched": "unmatched",
}
"""Item of a line → its category; None: by fate. Electricity and cooling of useful fates are useful, of others energy wasted."""


def category_of(item: str, fate: str | None) -> Category:
    """The category of a line. A fate that no category lists is a mistake of the programmer: KeyError."""
    named = ITEMS[item]
    found = next((one for one in CATEGORIES if (one.name == named if named else fate in one.fates)), None)
    if found is None:
        raise KeyError(f"fate {fate!r} of {item}: add it to the fates of one of CATEGORIES in ledger/bill/categories.py")
    if item in ("electricity", "cooling") and found.kind != "useful":
        return next(one for one in CATEGORIES if one.name == "energy wasted")
    return found
