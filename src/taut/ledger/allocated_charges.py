"""A charge of a bill split among those who caused it: parts that add up to it exactly, as rows of FOCUS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from taut.core.exact_shares import Shares
from taut.result.types import FocusRow

METHOD = "taut-accelerator-time"
"""Parts go by the accelerator time that each fate took of the charge (docs/focus.md)."""
SPLIT = (
    "billed_cost", "effective_cost", "list_cost", "contracted_cost", "pricing_quantity", "consumed_quantity",
    "commitment_discount_quantity", "pricing_currency_effective_cost",
)  # fmt: skip
"""What is added up over the parts; everything else is as in the origin."""


class Share(Struct, frozen=True, kw_only=True):
    """Who gets a part of a charge: by what weight, and why."""

    weight: Decimal | int
    fate: str | None = None
    cause: str | None = None
    job: str | None = None
    resource: str | None = None
    """What the part is allocated to; None: to the job, or to nobody."""
    resource_name: str | None = None
    tags: str | None = None
    """JSON text of tags beyond those of the charge."""


def allocate(charge: FocusRow, shares: Sequence[Share], method: str = METHOD, unit: str | None = None) -> list[FocusRow]:
    """A charge in parts by weight, each amount and quantity added up to the charge's own; ``unit`` is that of the weights.

    What the charge does not say stays unsaid in its parts. Raises ValueError where there are no shares, or their weights add
    up to 0 without being 0.
    """
    weights = [Decimal(share.weight) for share in shares]
    shared = Shares(weights)
    wholes = {name: whole for name in SPLIT if (whole := getattr(charge, name)) is not None}
    parts = {whole: shared.of(whole) for whole in {*wholes.values(), Decimal(1)}}
    return [
        replace(
            charge, **{name: parts[whole][i] for name, whole in wholes.items()}, allocated_method_id=method,
            allocated_ratio=ratio, allocated_usage_unit=unit, allocated_usage_quantity=weights[i] if unit else None,
            allocated_resource_id=share.resource if share.resource is not None else share.job,
            allocated_resource_name=share.resource_name, allocated_tags=share.tags, x_taut_fate=share.fate,
            x_taut_cause=share.cause, x_taut_job=share.job,
        )
        for i, (share, ratio) in enumerate(zip(shares, parts[Decimal(1)], strict=True))
    ]  # fmt: skip


def charge_of(row: Mapping[str, object], origin: str) -> FocusRow:
    """A row of a bill (``Charges.table``) as the origin of its parts; ``origin`` names it.

    Raises ValueError where it has no currency, account or period: such a charge cannot be written.
    """
    cells = {
        field: row.get(_column(field)) for field in FocusRow.__struct_fields__ if not field.startswith(("x_", "allocated_"))
    }
    texts = {field: cell for field, cell in cells.items() if isinstance(cell, str | Decimal | datetime)}
    costs = dict.fromkeys(SPLIT[:4])
    try:
        return convert({**costs, **texts, "x_taut_origin": origin}, FocusRow)
    except ValidationError as error:
        raise ValueError(f"{origin} cannot be written as a charge: {error}") from None


def _column(field: str) -> str:
    return "".join(part.capitalize() for part in field.split("_"))
