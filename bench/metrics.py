"""How fast metrics are read: MB of a file per second of CPU, one core, into series.

python bench/metrics.py
"""

from __future__ import annotations

import io
import json
import random
import time
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from taut.read.metrics import reader as metrics

GPUS, SECONDS, NOW = 64, 4000, 1_700_000_000


LABELS = 'Hostname="node{}",UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e{:02}",device="nvidia{}",gpu="{}",modelName="H100 80GB"'


def inputs() -> dict[str, bytes]:
    """The same samples in every shape: power of some accelerators, once a second."""
    rng = random.Random(0)
    watts = [[round(rng.uniform(100, 700), 3) for _ in range(SECONDS)] for _ in range(GPUS)]
    labels = [LABELS.format(i // 8, i, i % 8, i % 8) for i in range(GPUS)]
    places = [f"n{i // 8} gpu {i % 8}" for i in range(GPUS)]
    dates = [f"2023/11/14 {t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}.000" for t in range(SECONDS)]
    dump, text, scrapes, tidy, smi, lines = (
        [],
        [],
        [],
        ["time,component,metric,value"],
        ["timestamp, index, power.draw [W]"],
        [],
    )
    for t in range(SECONDS):
        scrapes.append(f"# {NOW + t}")
        for i, place in enumerate(places):
            value, at = watts[i][t], NOW + t
            scrapes.append(f"DCGM_FI_DEV_POWER_USAGE{{{labels[i]}}} {value}")
            text.append(f'power_watts{{host="n{i // 8}",gpu="{i % 8}"}} {value} {at}000')
            tidy.append(f"{at},{place},power,{value}")
            smi.append(f"{dates[t]}, {i}, {value} W")
            lines.append(json.dumps({"time": at, "component": place, "metric": "power", "value": value}))
    for i in range(GPUS):
        name = f'{{__name__="DCGM_FI_DEV_POWER_USAGE", {labels[i].replace(",", ", ")}}}'
        dump += [f"{name} {watts[i][t]} {NOW + t}000" for t in range(SECONDS)]
    shapes = {
        "dump of promtool, long labels": dump, "exposition with times, short labels": text, "scrapes without times": scrapes,
        "tidy CSV": tidy, "nvidia-smi CSV": smi, "JSON lines": lines,
    }  # fmt: skip
    out = {name: "".join(f"{line}\n" for line in rows).encode() for name, rows in shapes.items()}
    return {**out, "answer of Prometheus": matrix(watts), "tidy Parquet": parquet(watts, places)}


def matrix(watts: list[list[float]]) -> bytes:
    series = [
        {
            "metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "gpu": str(i)},
            "values": [[NOW + t, str(v)] for t, v in enumerate(mine)],
        }
        for i, mine in enumerate(watts)
    ]
    data = {"resultType": "matrix", "result": series}
    return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()


def parquet(watts: list[list[float]], places: list[str]) -> bytes:
    columns = {
        "time_ns": [(NOW + t) * 10**9 for t in range(SECONDS)] * GPUS,
        "component": [place for place in places for _ in range(SECONDS)],
        "metric": ["power"] * GPUS * SECONDS,
        "value": [value for mine in watts for value in mine],
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def main() -> None:
    print("| shape | MB | MB/s of CPU | million samples/s |\n|---|---|---|---|")
    for name, data in inputs().items():
        metrics.load(data, name)
        took = []
        for _ in range(5):
            began = time.process_time()
            metrics.load(data, name)
            took.append(time.process_time() - began)
        cost = median(took)
        print(f"| {name} | {len(data) / 1e6:.1f} | {len(data) / 1e6 / cost:.0f} | {GPUS * SECONDS / 1e6 / cost:.1f} |")


if __name__ == "__main__":
    main()
