"""Recorded requests of an inference service: when each arrived, the tokens of its prompt and of its answer.

CSV with a header, or JSON lines; compressed with gzip or not. Azure's and BurstGPT's traces (CSV) and Mooncake's (JSON
lines, milliseconds) are known by their column names. Requests without an answer are left out: they failed.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from taut.core.array_types import Floats, Json
from taut.core.errors import InputRefused
from taut.read.columns import float_or_nan
from taut.read.json_fields import json_object
from taut.read.limits import WALL_NS
from taut.read.table_file import csv_rows

# Requests that are read; a file with more is cut, and the result says so.
MOST = 50_000
# Text that is looked at for them.
MOST_BYTES = 64 << 20
# Longest line.
LINE = 1 << 20
SPELLINGS = {
    "time": ("timestamp_ns", "timestamp_us", "timestamp_ms", "timestamp", "arrival_ms", "arrival_s", "arrival_time", "arrival",
             "time_ms", "time_s", "time"),
    "prompt": ("contexttokens", "request tokens", "prompt_tokens", "input_tokens", "input_length", "prompt_len",
               "num_prefill_tokens", "context_tokens"),
    "generated": ("generatedtokens", "response tokens", "generated_tokens", "completion_tokens", "output_tokens",
                  "output_length", "output_len", "num_decode_tokens"),
}  # fmt: skip
UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
"""Numbers without a unit in their name are seconds …"""
MILLISECONDS = "hash_ids"
"""… except beside this field of Mooncake's traces."""
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{1,9})?)(?:Z|[+-]00:?00)?", re.ASCII)


_NONE = np.array([np.nan])


def load(path: str | Path) -> dict[str, Json]:
    """The requests of a file in the order they came, as the table ``[arrivals]`` takes them."""
    rows = _rows(_text(Path(path)), str(path))
    times: list[Json] = []
    tokens: list[tuple[int, int]] = []
    unit, cut = 1.0, False
    for number, row in rows:
        if len(times) == MOST:
            cut = True
            break
        found = {key: next((name for name in names if name in row), None) for key, names in SPELLINGS.items()}
        if None in found.values():
            lacks = ", ".join(key for key, name in found.items() if name is None)
            raise InputRefused(f"{path}:{number}", f"no column for {lacks}", "give time, prompt_tokens and generated_tokens")
        unit = UNITS_S.get(str(found["time"]).rpartition("_")[2], 1e-3 if MILLISECONDS in row else 1.0)
        prompt, generated = (_tokens(row[str(found[key])], f"{path}:{number}") for key in ("prompt", "generated"))
        if prompt and generated:
            times.append(row[str(found["time"])])
            tokens.append((prompt, generated))
    if len(times) < 2:
        raise InputRefused(path, f"{len(times)} requests with an answer are too few", "give a file of requests")
    at = _seconds(times, unit, str(path))
    order = np.argsort(at, kind="stable")
    counts = np.array(tokens)[order]
    if at[order[-1]] == at[order[0]]:
        raise InputRefused(path, "all requests came at the same time", "give a file with their arrival times")
    return {
        "time_s": (at[order] - at[order[0]]).tolist(),
        "prompts": counts[:, 0].tolist(),
        "generated": counts[:, 1].tolist(),
        "cut": cut,
    }


def _text(path: Path) -> str:
    """The beginning of a file as text, up to its last whole line."""
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InputRefused(path, f"cannot be read: {getattr(error, 'strerror', None) or error}", "check the file") from None
    except Exception as error:  # zlib says what is wrong with a stream in its own words
        raise InputRefused(path, f"cannot be unpacked: {error}", "check the file") from None
    if len(data) > MOST_BYTES:
        data = data[: data.rfind(b"\n", 0, MOST_BYTES) + 1]
    return data.decode("utf-8", "replace").lstrip("\ufeff")


def _rows(text: str, label: str) -> Iterator[tuple[int, Mapping[str, Json]]]:
    """(line, fields by their names in lower case) of each request."""
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            found = json_object(line) if len(line) <= LINE else None
            if found is None:
                raise InputRefused(f"{label}:{number}", "not a JSON line", "cut the file before this line")
            yield number, {key.strip().lower(): value for key, value in found.items()}
        return
    yield from csv_rows(text, label)


def _tokens(value: Json, where: str) -> int:
    found = float_or_nan(value)
    if not 0 <= found < 1e9:
        raise InputRefused(where, f"{str(value)[:40]!r} is no number of tokens", "correct the line")
    return int(found)


def _seconds(values: list[Json], unit: float, label: str) -> Floats:
    """Times as seconds: numbers in their unit, or dates."""
    found = np.array(list(map(float_or_nan, values))) * unit
    if np.isnan(found).any():
        found = _dates(values)
    if not np.isfinite(found).all() or abs(found).max() > 1e12:
        raise InputRefused(label, "a time that is none", "give seconds, or dates as 2023-11-16 18:15:46.68")
    if (found.max() - found.min()) * 1e9 > WALL_NS:
        raise InputRefused(label, "its requests lie more than ten years apart", "check the unit of the times")
    return found


def _dates(values: list[Json]) -> Floats:
    parts = [_DATE.fullmatch(str(value).strip()) for value in values]
    try:
        return np.array([f"{p[1]}T{p[2]}" for p in parts if p], "datetime64[us]").astype(float) * 1e-6 if all(parts) else _NONE
    except ValueError:  # the 31st of February
        return _NONE
