"""Inputs made of others: compressed, in archives, and folders of several ranks with everything that may lie beside them."""

from __future__ import annotations

import gzip
import io
import tarfile

from fuzzing import logs
from fuzzing.seeds import SMALL, Seed, execution, flight_json, job_ops, kineto, of, seed


def _ranks() -> dict[str, bytes]:
    return kineto()[0].files


def gzipped() -> list[Seed]:
    """A trace, and a log, compressed."""
    ranks = _ranks()
    return [
        seed({"rank0.json.gz": gzip.compress(ranks["rank0.json"], mtime=0)}, {"rank1.json": ranks["rank1.json"]}),
        seed({"sacct.txt.gz": gzip.compress(of("read/jobs/test_sacct").PARSABLE.encode(), mtime=0)}),
    ]


def archives() -> list[Seed]:
    """Traces of two ranks in a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in _ranks().items():
            header = tarfile.TarInfo(f"job/{name}")
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    return [seed({"job.tar": out.getvalue()})]


def folders() -> list[Seed]:
    """Several ranks with everything that may lie beside them, of which one file is mutated."""
    extra: dict[str, bytes] = {}
    for made in (
        flight_json()[0],
        logs.metric_csv()[1],
        logs.progress()[1],
        logs.sacct()[0],
        logs.slurmctld()[0],
        logs.training_logs()[0],
        execution()[0],
    ):
        extra |= {name: made.files[name] for name in made.changed}
    ranks = _ranks()
    both = {**ranks, **{name: data for name, data in extra.items() if len(data) < SMALL}}
    ops = {
        "ops.csv": job_ops(3, 3).encode(),
        "loss.jsonl": extra["loss.jsonl"],
        "metrics.csv": extra["metrics.csv"],
        "sacct.txt": extra["sacct.txt"],
    }
    return [Seed(both, tuple(both)), Seed(ops, tuple(ops)), Seed(ranks, tuple(ranks))]
