"""Files that options name (topologies, scenarios, configurations of loops, requests), and the values of options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzzing.judge import FOLDER, Case
from fuzzing.mutate import INTEGERS, TEXTS, lines, mixed, number_text, raw
from fuzzing.seeds import ROOT, Seed, each, job_ops, of, seed
from fuzzing.tabular import csv
from fuzzing.trees import json_lines, toml

Mutate = Callable[[Random, Seed, int], Case]
OPS = f"{FOLDER}/ops.csv"


def topologies() -> list[Seed]:
    """Topologies in all three forms, beside a small trace."""
    t = of("read/test_rank_topology")
    ops = {"ops.csv": job_ops(3, 2)}
    return each("topology", t.TOML, t.SLURM, t.MATRIX, beside=ops)


def beside_ops(option: str) -> Mutate:
    """Analyzes the trace with a mutated file as the value of an option."""
    change = mixed(toml, lines)

    def mutate(rng: Random, one: Seed, number: int) -> Case:
        name = one.changed[0]
        args = ["analyze", OPS, option, f"{FOLDER}/{name}", "-o", "run", "--json", "-q"]
        return Case({**one.files, name: change(rng, one.files[name])}, args, number)

    return mutate


VALUES: dict[str, list[str]] = {
    "--gpu-hour": ["2.50EUR", "2$", "0EUR", "€2"],
    "--token-price": ["3.00,15.00USD", "0,0EUR"],
    "--power": ["700,450,120", "700", "1e3"],
    "--carbon": ["0.4", "0", "nan", "inf"],
    "--map": ["Hostname,gpu→rank", "worker->rank", "a,b,c->rank", "→"],
    "--fail-on": ["0.5", "0", "1", "nan"],
    "--pays": ["0.5", "1", "1e-300", "nan"],
    "--metrics": [f"{FOLDER}/metrics.csv", "/dev/null", "http://", "http://[", "nothing.csv"],
    "--topology": ["/dev/null", "nothing"],
    "--envelope": [],
}


def values() -> list[Seed]:
    """A small trace beside metrics; what changes are the options."""
    return [seed({"ops.csv": job_ops(2, 2), "metrics.csv": of("read/metrics/test_reader").TIDY})]


def asked(rng: Random, one: Seed, number: int) -> Case:
    """``analyze`` with a few options, their values mutated; addresses are never asked."""
    args = ["analyze", OPS, "-o", "run", "-q", "--json"]
    for name in rng.sample(sorted(VALUES), rng.choice([1, 1, 2, 3])):
        args.append(name)
        if VALUES[name]:
            args.append(_value(rng, rng.choice(VALUES[name])))
    return Case(one.files, args, number)


def _value(rng: Random, old: str) -> str:
    kind = rng.random()
    if kind < 0.2:
        return old
    if kind < 0.35:
        text = rng.choice(TEXTS)
    elif kind < 0.5:
        text = str(rng.choice(INTEGERS))
    else:
        change = number_text if kind < 0.6 else raw
        text = change(rng, old.encode()).decode("utf-8", "surrogateescape")
    text = text.replace("\0", "0")  # no command line holds one
    # Nothing is asked of the network, and nothing outside the folder of the case is read.
    outside = text.startswith(("/", "~")) or ".." in text or text.strip(" .") == "" or "://" in text
    return old if outside else text


SMALLER = {
    "horizon_s = 1200": "horizon_s = 12", "horizon_s = 360": "horizon_s = 10", "dp = 256": "dp = 4",
    "global_batch = 512": "global_batch = 16",
    "nodes = 512": "nodes = 8",
}  # fmt: skip
LOOPS = """name = "small"
[loops]
horizon_s = 20
accelerators = 8
[demand]
per_s = 2
deadline_s = 5
[pool]
name = "chat"
service_s = 0.5
replicas = 3
least = 1
most = 6
start_s = 2
[[client]]
name = "sdk"
timeout_s = 3
retries = 2
back_off_s = 0.5
[[autoscaler]]
name = "scaler"
signal = "concurrency"
target = 0.8
period_s = 5
"""


def scenarios() -> list[Seed]:
    """Small scenarios of training and of control loops, and those that ship, made smaller."""
    small = (
        of("project/training/test_scenario")
        .TEXT.replace("dp = 32", "dp = 4")
        .replace("global_batch = 512", "global_batch = 64")
    )
    shipped = []
    for name in ("multi-tenant", "retry-heavy", "gpt-175b"):
        text = (ROOT / "src" / "taut" / "scenarios" / f"{name}.toml").read_text()
        for old, new in SMALLER.items():
            text = text.replace(old, new)
        shipped.append(text)
    return each("s.toml", small, LOOPS, small, LOOPS, *shipped)


def projected(rng: Random, one: Seed, number: int) -> Case:
    """``taut project`` on a mutated scenario, few steps."""
    args = ["project", f"{FOLDER}/s.toml", "--json", "-q", "--steps", "2"]
    if rng.random() < 0.1:
        args += ["--ranks", _value(rng, "2,4")]
    if rng.random() < 0.1:
        args += ["--policy", _value(rng, rng.choice(["overlap=0.9", "spares=2,local-steps=4", "retry-budget=0.2"]))]
    change = mixed(toml, lines, bare=0.15)
    return Case({"s.toml": change(rng, one.files["s.toml"])}, args, number)


def loops() -> list[Seed]:
    """Configurations of control loops."""
    return each(
        "new.toml", of("read/actions/test_loops_config").TEXT, beside={"old.toml": of("read/actions/test_loops_config").TEXT}
    )


def reviewed(rng: Random, one: Seed, number: int) -> Case:
    """``taut control review`` of an old and a mutated configuration."""
    change = mixed(toml, lines, bare=0.15)
    args = ["control", "review", f"{FOLDER}/old.toml", f"{FOLDER}/new.toml", *(["--json"] if number % 2 else [])]
    return Case({**one.files, "new.toml": change(rng, one.files["new.toml"])}, args, number)


def requests() -> list[Seed]:
    """Recorded requests in the forms that are known."""
    rows = [{"timestamp": 1000 * k, "input_length": 396, "output_length": 109 + k, "hash_ids": [k]} for k in range(4)]
    burst = "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,GPT-4,374,44,418\n7,a,9,0,9\n9.25,b,396,109,5\n"
    return each("requests.csv", of("read/test_request_log").AZURE, burst, "\n".join(map(json.dumps, rows)))


def requested(rng: Random, one: Seed, number: int) -> Case:
    """A file of requests, mutated."""
    change = mixed(csv, json_lines, lines)
    return Case({"requests.csv": change(rng, one.files["requests.csv"])}, number=number)


def read_requests(root: Path, case: Case) -> str:
    """Reads them as a scenario would, and checks what a simulator needs: times in order, whole tokens, nothing infinite."""
    from fuzzing.judge import BrokenLaw
    from taut.read.request_log import load

    found = load(root / FOLDER / "requests.csv")
    times = found["time_s"]
    if any(not 0 <= t < 1e12 for t in times) or any(b < a for a, b in itertools.pairwise(times)):
        raise BrokenLaw(f"times of requests: {times[:5]}")
    for key in ("prompts", "generated"):
        if any(not 0 <= n < 2**53 for n in found[key]):
            raise BrokenLaw(f"tokens of requests: {found[key][:5]}")
    return "accepted"
