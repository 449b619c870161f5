"""Write an op table of a modelled job: ranks × steps × 100 ops, groups of eight and a job-wide all-reduce, one slow rank.

python bench/generate_job.py OUT.parquet --ranks 1024 --steps 50 --slow 37 [--blocks 10]
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BLOCKS, COMPUTES, ISLAND = 10, 9, 8


def table(ranks: int, steps: int, slow: int, seed: int, blocks: int = BLOCKS, named: int | None = None) -> pa.Table:
    """Each step: ten blocks of nine computes and one collective; the last collective joins all ranks.

    Every block has names of its own, or so many have, and the others theirs again.
    """
    rng = np.random.default_rng(seed)
    per_step = blocks * (COMPUTES + 1)
    start = np.empty((steps, per_step, ranks), dtype=np.int64)
    end = np.empty_like(start)
    now = np.zeros(ranks)
    pace = np.ones(ranks)
    if slow >= 0:
        pace[slow] = 1.2
    for step in range(steps):
        for block in range(blocks):
            for k in range(COMPUTES):
                i = block * (COMPUTES + 1) + k
                start[step, i] = now
                now = np.rint(now + 1e6 * pace * rng.normal(1, 0.03, ranks))
                end[step, i] = now
            i = block * (COMPUTES + 1) + COMPUTES
            start[step, i] = now
            width = ISLAND if block < blocks - 1 else ranks
            now = np.repeat(now.reshape(-1, width).max(axis=1), width) + 5e5
            end[step, i] = now
    op = np.arange(per_step)
    names = np.array([f"layer {i // 10 % (named or blocks)} op {i % 10}" if i % 10 < COMPUTES else "all-reduce" for i in op])
    shape = (steps, per_step, ranks)
    rank = np.broadcast_to(np.arange(ranks, dtype=np.int32), shape).ravel()
    island = np.where(op % 10 < COMPUTES, -1, np.where(op // 10 < blocks - 1, 0, 1))
    group = np.where(island[:, None] == 0, np.arange(ranks) // ISLAND, np.where(island[:, None] == 1, ranks, -1))
    seq = np.arange(steps)[:, None] * blocks + op // 10
    labels = pa.array([f"island {i}" for i in range(ranks)] + ["world"])
    index = np.broadcast_to(np.where(group < 0, 0, group), shape).ravel().astype(np.int32)
    none = np.broadcast_to(group < 0, shape).ravel()
    return pa.table(
        {
            "rank": rank,
            "step": np.broadcast_to(np.arange(steps, dtype=np.int32)[:, None, None], shape).ravel(),
            "class": pa.DictionaryArray.from_arrays(
                np.broadcast_to(np.unique(names, return_inverse=True)[1][:, None].astype(np.int16), shape).ravel(),
                pa.array(np.unique(names)),
            ),
            "start_ns": start.ravel(),
            "duration_ns": (end - start).ravel(),
            "lane": pa.DictionaryArray.from_arrays(np.zeros(rank.size, dtype=np.int8), pa.array(["stream 7"])),
            "group": pa.DictionaryArray.from_arrays(pa.array(index, mask=none), labels),
            "seq": np.broadcast_to(seq[:, :, None], shape).ravel().astype(np.int64),
        }
    )


def main() -> None:
    """Parse the command line and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--slow", type=int, default=37, help="rank that computes 20 %% slower; -1 for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of ten ops each, in a step")
    args = parser.parse_args()
    pq.write_table(table(args.ranks, args.steps, args.slow, args.seed, args.blocks), args.out, compression="zstd")


if __name__ == "__main__":
    main()
