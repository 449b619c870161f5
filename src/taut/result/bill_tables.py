"""The lines of a bill as a table of its run folder, for people who read Parquet and no JSON."""

from __future__ import annotations

import pyarrow as pa

from taut.result.types import BillResult


def line_table(result: BillResult) -> pa.Table:
    """One row for each line; money as decimal text beside its currency."""
    texts = ("category", "kind", "item", "fate", "cause", "money", "billed", "source", "origin")
    kinds = {**dict.fromkeys(texts, pa.string()), "rank_ns": pa.int64(), "joules": pa.float64(), "kg_co2e": pa.float64()}
    columns = {name: pa.array([getattr(line, name) for line in result.lines], kind) for name, kind in kinds.items()}
    return pa.table({**columns, "currency": pa.array([result.currency] * len(result.lines), pa.string())})
