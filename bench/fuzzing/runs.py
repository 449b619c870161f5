"""Run folders: tables that are valid Parquet but hold other values, types and row counts; an edited ``run.json``; files that
are gone, swapped or foreign. Then the verbs that take a run folder are asked."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fuzzing import folders, logs
from fuzzing import seeds as small
from fuzzing.judge import FOLDER, Case
from fuzzing.mutate import raw, times
from fuzzing.seeds import Seed, seed
from fuzzing.tabular import _table, column
from fuzzing.trees import change

GOOD = "good"
ASKS = (
    ["whatif", FOLDER, "--fix", "rank=1", "--json"],
    ["whatif", FOLDER, "--fix", "class=all-reduce", "--delay", "rank=0,step=1,ms=4", "--json"],
    ["export", FOLDER, "--to", "perfetto", "-o", "x.pftrace"],
    ["export", FOLDER, "--to", "perfetto", "-o", "x.pftrace", "--zone", "1"],
    ["compare", f"{FOLDER}/{GOOD}", f"{FOLDER}/run", "--json", "-q"],
    ["project", "--from", FOLDER, "--ranks", "4", "--json", "-q"],
    ["whatif", FOLDER, "--fix", "link=0:1", "--fix", "gate=all-reduce", "--json"],
)


def seeds() -> list[Seed]:
    """Run folders of small jobs: op tables, Kineto traces, spans, metrics and attempts beside."""
    from taut.ledger import Prices
    from taut.run import analyze

    out = []
    makers = (
        small.op_tables()[1],
        small.kineto()[0],
        small.otlp()[1],
        logs.metric_csv()[1],
        small.flight_json()[0],
        folders.folders()[1],
        small.each("ops.csv", small.of("test_cli").op_table(40, "fwd", 4, 8))[0],
    )
    with tempfile.TemporaryDirectory() as scratch:
        for k, one in enumerate(makers):
            home = Path(scratch) / f"in{k}"
            home.mkdir()
            for name, data in one.files.items():
                (home / name).write_bytes(data)
            run = analyze([home], prices=Prices(Decimal("2.50"), "EUR", 700.0)).save(Path(scratch) / f"run{k}")
            out.append(seed({path.name: path.read_bytes() for path in sorted(run.iterdir())}))
    return out


def mutated(rng: Random, one: Seed, number: int) -> Case:
    """One run folder with a few changes; its manifest is made to fit in most cases, so that the tables are reached."""
    files = dict(one.files)
    for _ in range(times(rng, 3)):
        _change(rng, files)
    if rng.random() < 0.85:
        sealed(files)
    ask = ASKS[number % len(ASKS)]
    if ask[0] == "compare":
        files = {
            **{f"run/{name}": data for name, data in files.items()},
            **{f"{GOOD}/{name}": data for name, data in one.files.items()},
        }
    return Case(files, ask, number)


def _change(rng: Random, files: dict[str, bytes]) -> None:
    tables = [name for name in files if name.endswith(".parquet")]
    kind = rng.random()
    if kind < 0.7 and tables:
        weights = [4 if name.startswith(("ops", "edges", "events")) else 1 for name in tables]
        name = rng.choices(tables, weights)[0]
        files[name] = _parquet(rng, files[name])
    elif kind < 0.85 and "run.json" in files:
        files["run.json"] = _edited(rng, files["run.json"])
    elif kind < 0.9:
        name = rng.choice(sorted(files))
        files[name] = raw(rng, files[name])
    elif kind < 0.94:
        del files[rng.choice(sorted(files))]
    elif kind < 0.97:
        a, b = rng.choice(sorted(files)), rng.choice(sorted(files))
        files[a], files[b] = files[b], files[a]
    else:
        files[rng.choice(["x", "notes.txt", "more.parquet", ".hidden"])] = b"PAR1 not mine"
    if not files:
        files["x"] = b""


def _parquet(rng: Random, data: bytes) -> bytes:
    try:
        table = column(rng, _table(data))
        out = io.BytesIO()
        pq.write_table(table, out, compression="lz4", write_statistics=False)
        return out.getvalue()
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError):
        return raw(rng, data)


def _edited(rng: Random, data: bytes) -> bytes:
    try:
        tree = json.loads(data)
        part = rng.choice(["graph", "graph", "graph", "result", ""])
        if part and isinstance(tree, dict) and isinstance(tree.get(part), dict):
            tree[part] = change(rng, tree[part])
        else:
            tree = change(rng, tree)
        return json.dumps(tree).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return raw(rng, data)


def sealed(files: dict[str, bytes]) -> None:
    """Make the manifest in ``run.json`` fit the other files, as one who attacks would."""
    try:
        tree: Any = json.loads(files["run.json"])
        manifest = tree["files"]
        entry = next(iter(manifest.values())) if isinstance(manifest, dict) else None
        if not isinstance(entry, dict):
            return
        for name in list(manifest):
            data = files.get(name)
            if data is not None:
                manifest[name] = {key: _fact(key, data) for key in entry}
        files["run.json"] = json.dumps(tree).encode("utf-8", "surrogatepass")
    except (ValueError, KeyError, TypeError, RecursionError, StopIteration):
        return


def _fact(key: str, data: bytes) -> Any:
    return len(data) if key in ("size", "bytes") else hashlib.sha256(data).hexdigest()
