"""Metrics beside the traces: what sensors and counters of components showed while the job ran.

Known by content: tables of samples (CSV, Parquet, JSON lines; a row per sample, or a column per metric as
``nvidia-smi --query-gpu`` and the lab write it, where ``X_limit`` is the limit of ``X``), the text of Prometheus
(``promtool tsdb dump``, scrapes of an exporter), and what its HTTP API answers (a matrix). Units are converted, counters
become rates per second, and a metric that is another's limit becomes that. A time without a unit is read by its size.
"""

from __future__ import annotations

from msgspec.structs import replace

from taut.read.contents import Metrics
from taut.read.metrics import prometheus_text, sample_table
from taut.read.metrics.prometheus_answer import matrix
from taut.read.metrics.rank_metrics import apply
from taut.read.metrics.series import USUAL, Map, gather
from taut.read.metrics.setting_actions import settings
from taut.read.table_file import PARQUET, header_cells

__all__ = ["PARQUET", "Metrics", "apply", "load", "matrix", "sniff"]


def sniff(head: bytes) -> bool:
    """JSON lines or a CSV with metric and value, a CSV with a time and known metrics, Prometheus as a matrix or as text."""
    text = head.lstrip()
    line = text.split(b"\n", 1)[0]
    if b"\x00" in line:
        return False
    if line[:1] == b"{" and b'"resultType"' in text and b'"matrix"' in text:
        return True
    if line[:1] == b"{" and b'"metric"' in line and b'"value"' in line and b'"traceEvents"' not in line:
        return True
    return prometheus_text.sniff(text) or (line[:1] not in (b"{", b"[") and sample_table.is_table(header_cells(line)))


def is_parquet(data: bytes) -> bool:
    """Whether this is a Parquet file of samples."""
    return data[:4] == PARQUET and sample_table.is_table(sample_table.parquet_columns(data))


def load(data: bytes, label: str, mapped: Map = USUAL) -> Metrics:
    """The series of one file."""
    start, zoneless, notes = bytes(data[: 64 << 10]).lstrip(), False, list[str]()
    if start[:1] == b"{" and b'"resultType"' in start:
        found = matrix(data, label)
    elif prometheus_text.sniff(start):
        found, notes = prometheus_text.load(data, label)
    elif start[:1] == b"{":
        found, zoneless = sample_table.from_lines(data, label)
    else:
        read = sample_table.from_parquet if data[:4] == PARQUET else sample_table.from_csv
        found, zoneless = read(data, label)
    return replace(gather(label, found, zoneless=zoneless, notes=notes, mapped=mapped), settings=settings(found))
