"""Every kernel of the package, and real arguments for each: those with which small jobs of all kinds call it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import taut
import xla_profiles as profiles
from actions import act, poisson, trace
from build import MS, barriers, job, ring_all_reduce
from device_traces import host_ahead
from taut.core import ids, jit, native
from taut.core.jit import Kernel
from timelines import timeline_of

NEEDS_TORCH = ("taut.lab.torch_jobs", "taut.lab.rank")
CALLS = 4
"""Recorded calls of each kernel and signature: later ones seldom do anything new, and every call is replayed."""

Args = tuple[Any, ...]


def kernels() -> dict[str, Kernel]:
    """Every kernel, by the module that defines it and its name."""
    found = {}
    for module in pkgutil.walk_packages(taut.__path__, "taut."):
        if module.name not in NEEDS_TORCH and not module.name.endswith("__main__"):
            values = vars(importlib.import_module(module.name)).values()
            found |= {f"{one.__module__}.{one.__name__}": one for one in values if isinstance(one, Kernel)}
    return found


def copied(args: Args) -> Args:
    """Arguments that a kernel may overwrite."""
    return tuple(np.array(one) if isinstance(one, (np.ndarray, list)) else one for one in args)


def in_machine_code(kernel: Kernel, *args: Any) -> Any:
    """What a kernel gives as machine code, however small its input: code that is kept, if it was compiled before."""
    dense = tuple(map(jit._dense, args))
    kind = native.signature(dense)
    assert kind is not None
    return kernel._compile(kind, dense)(*dense)


@contextmanager
def recorded() -> Iterator[dict[str, list[Args]]]:
    """Arguments of all kernel calls inside, those of kernels by kernels too, which run in Python for that."""
    calls: dict[str, dict[str, list[Args]]] = {}
    usual = Kernel.__call__

    def call(self: Kernel, *args: Any) -> Any:
        kind = " ".join(f"{getattr(one, 'dtype', type(one))}{np.ndim(one)}" for one in args)
        kept = calls.setdefault(f"{self.__module__}.{self.__name__}", {}).setdefault(kind, [])
        if len(kept) < CALLS:
            kept.append(copied(args))
        return self.function(*map(jit._listed, args)) if self.lists else self.function(*args)

    found: dict[str, list[Args]] = {}
    Kernel.__call__ = call  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Kernel.__call__ = usual  # type: ignore[method-assign]
        found.update({name: [one for kept in kinds.values() for one in kept] for name, kinds in calls.items()})


def training() -> None:
    """A ring with a slow link, lanes that wake each other, ranks that are paused by an action or were recorded in part."""
    from taut.core.span_kernels import begin_at
    from taut.graph import link
    from taut.render.track_order import beside
    from taut.result.analysis_result import report
    from taut.run import analyze_trace

    rng = np.random.default_rng(0)
    work = 10 * MS * rng.normal(1, 0.02, (8, 6))
    report(analyze_trace(ring_all_reduce(work, MS, {(1, 2): 3 * MS})))
    work[:, 4] *= 1.5
    report(analyze_trace(barriers(work)))
    two = {r: [f"fwd 5 | AR/a{r} 2 | bwd {3 + r}", f". 6 | AR 4 | AG/b{r} 2"] for r in range(3)}
    done = analyze_trace(job(two, steps=6, noise=0.05))
    assert done.observed.slack_ns.min() >= 0
    halted = {r: f"fwd 10 | {'. 40 | ' if r == 2 else ''}bwd 10 | AR 2" for r in range(4)}
    usual = dict.fromkeys(range(4), "fwd 10 | bwd 10 | AR 2")
    acts = [act(0.081, "scheduler", -1, "rank 2", "allocation"), act(0.101, "rescuer", 1, "rank 2", "allocation")]
    analyze_trace(replace(job(lambda step: halted if step == 3 else usual, steps=6), actions=trace(acts).actions))
    whole = job(dict.fromkeys(range(3), "fwd 5 | AR:8 1 | fwd 5 | AR:8 1 | fwd 5 | AR:8 1 | fwd 1"))
    ops = whole.ops
    link(replace(whole, ops=ops.take(~((ops.rank == 1) & (ops.verb > 0) & (ops.end_ns < 8 * MS)))))
    start = rng.integers(0, 50, 40)
    beside(rng.integers(0, 3, 40), start, start + rng.integers(1, 20, 40))
    begin_at(np.zeros(40, dtype=np.int64), np.zeros(1, dtype=np.int64), rng.random(40) < 0.9, start, np.unique(start))


def projection() -> None:
    """A training job with failures on a fabric, a service and a team of agents, all small."""
    from taut.project.fabric.flow import rates
    from taut.project.requests.agents.scenario import AgentScenario
    from taut.project.requests.agents.tasks import simulate as simulate_agents
    from taut.project.requests.serving.scenario import ServingScenario
    from taut.project.requests.serving.servers import simulate as simulate_serving
    from taut.project.training.failures import simulate_jobs
    from taut.project.training.forecast import forecast
    from taut.project.training.sampled_replica import rate
    from taut.project.training.scenario import Failure, parse
    from taut.read.scenario_file import load

    rates(np.array([0, 2, 3, 4]), np.array([0, 1, 0, 1]), [10.0, 4.0])
    table, text = load("gpt-175b")
    table["model"] = {**table["model"], "layers": 8, "hidden": 2048, "heads": 16}
    table["job"] = {"global_batch": 16, "dp": 4, "tp": 2, "pp": 2}
    small = parse(table, "small", text)[0]
    forecast(small, count=2)
    forecast(parse({**table, "policy": {"copy_after": 0.5}}, "small", text)[0], count=2)  # copies are looked up by themselves
    with patch("taut.project.training.sampled_replica.MOST", 3):
        rate(small, 1)
    often = Failure(node_per_1000_node_days=30000.0, spares=1, repair_hours=5.0, restore_s=30.0, checkpoint_s=30.0,
                    warmup_steps=5.0, warmup_share=0.25, heat_steps=50.0, placement_spread=0.1, redrawn_share=0.25)  # fmt: skip
    simulate_jobs(often, 4, 8, 20_000.0, step_s=3.0, count=2, seed=1)
    table, text = load("latency-inference")
    table["serving"] = {**table["serving"], "replicas": 2, "queue_limit": 1}
    table["arrivals"] = {"per_s": 20.0, "prompt_tokens": 500, "generated_tokens": 8, "generated_spread": 0.5}
    simulate_serving(ServingScenario.parse(table, "latency-inference", text)[0], 50, 1, 1e7)
    table, text = load("agent-chain")
    with patch("taut.project.requests.agents.tasks.STRETCH", 1):
        simulate_agents(AgentScenario.parse(table, "agent-chain", text)[0], 50, 1)


def controllers() -> None:
    """Controllers that undo each other, a knob that swings, calls that are repeated without saying so."""
    from taut.control import amplification, conflict, oscillation
    from taut.control.relations import prepare

    rng = np.random.default_rng(0)
    rows = []
    for t in poisson(rng, np.full(200, 0.3)):
        rows += [act(t, "scheduler", -1), act(t + 0.5, "rescuer", 1), act(t + 1.0, "scheduler", 1)]
    conflict.relate(prepare(trace(rows)), rng)
    oscillation.zigzag(rng.normal(size=30), 0.5)
    at = poisson(rng, 0.2 + 1.0 * (np.arange(300) % 120 < 60))
    amplification.branching(at, amplification.rate_steps(at), 0.5, rng)


def files() -> None:
    """Execution traces of two ranks that are laid out, XLA profiles, and an answer of Prometheus."""
    from taut.read.chakra import reader as chakra
    from taut.read.chakra.schedule import laid_out
    from taut.read.metrics.sample_lists import numbers
    from taut.read.xplane import reader as xplane

    psum = profiles.instruction("psum.1", "all-reduce", 8, profiles.listed((0, 1)))
    for made in (profiles.put(1, profiles.module(7, psum)) + profiles.gpu_job(), profiles.tpu_job()):
        xplane.load(made, "node0.xplane.pb")
    laid_out([chakra.load(plan(rank), f"job.{rank}.et") for rank in (0, 1)])
    numbers(b'[[1700000000,"1.5"],[1700000001.25,"-2e3"],[1700000002,"NaN"]],[[1700000003,"7"]]')


def device() -> None:
    """A rank with an accelerator, whose host runs ahead of it."""
    from taut.graph import link
    from taut.read.kineto import reader as kineto

    link(kineto.load(host_ahead().encode(), "rank 0"))


def plan(rank: int) -> bytes:
    """A Chakra execution trace of one rank: compute, meet, compute; the numbers of the nodes are not in that order."""
    forward = [(1, 2), (2, b"forward"), (3, 4), (7, 100 + 60 * rank)]
    meet = [(1, 1), (2, b"gradients"), (3, 7), (5, b"\2"), (7, 30)]
    meet += [(10, message([(1, b"comm_type"), (9, 0)])), (10, message([(1, b"comm_size"), (9, 4096)]))]
    update = [(1, 3), (2, b"update"), (3, 4), (5, b"\1"), (7, 10)]
    parts = [message([(1, b"0.0.4")]), message(forward), message(meet), message(update)]
    return b"".join(varint(len(part)) + part for part in parts)


def message(fields: list[tuple[int, int | bytes]]) -> bytes:
    """A protobuf message of whole numbers and bytes."""
    return b"".join(
        varint(number << 3) + varint(value) if isinstance(value, int) else varint(number << 3 | 2) + varint(len(value)) + value
        for number, value in fields
    )


def varint(value: int) -> bytes:
    """A whole number as protobuf writes it."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def timeline() -> None:
    """Frames of ranks with two lanes, in more and in fewer columns than nanoseconds."""
    frames = timeline_of(job({r: [f"fwd {5 + r} | AR 2", ". 1 | copy 3"] for r in range(3)}, steps=2, noise=0.1))
    wall = frames.axis.wall_ns
    for begin, end, row in ((0, wall, 0), (wall // 3, wall // 3 + 5, 1)):
        frames.frame(begin, end, row, 2, 7, 1)
        frames.cells(begin, end, row, 2, 7, 1)
    frames.ops_between(0, wall, 0, 3, 4)


JOBS: tuple[Callable[[], None], ...] = (training, projection, controllers, files, device, timeline)


def recorded_calls() -> dict[str, list[Args]]:
    """Arguments of every kernel that some job calls."""
    from taut.project.training import pipeline

    pipeline.program.cache_clear()  # what an earlier test has computed would not be called again
    with recorded() as calls, patch.object(ids, "FEW_NUMBERS", 0):  # of few rows numpy takes care
        for one in JOBS:
            one()
    return calls
