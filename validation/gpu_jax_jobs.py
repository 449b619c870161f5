"""Jobs of JAX for ``gpu_traces.py``: marked and not, ahead and waited for, loops inside, callbacks, input from the host."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import numpy as np
from jax import numpy as jnp

Job = Callable[[Path, str], dict[str, Any]]
FIRST = 10


def looped(step: Callable[[Any, Any], Any], state: Any, inputs: Any, marks: bool, wait: bool, steps: int = 8) -> Job:
    """A loop around a jitted function, profiled after two runs; both files of the profiler are kept."""

    def loop(carried: Any, annotate: bool) -> tuple[Any, float]:
        begun = time.perf_counter()
        for i in range(FIRST, FIRST + steps):
            note = jax.profiler.StepTraceAnnotation("train", step_num=i) if annotate else None
            if note:
                note.__enter__()
            carried, loss = step(carried, inputs if isinstance(inputs, jax.Array) else jax.device_put(inputs))
            if wait:
                jax.block_until_ready(loss)
            if note:
                note.__exit__(None, None, None)
        jax.block_until_ready(carried)
        return carried, 1e3 * (time.perf_counter() - begun) / steps

    def run(folder: Path, name: str) -> dict[str, Any]:
        carried = loop(loop(state, False)[0], False)[0]
        scratch = folder / f"{name}.scratch"
        jax.profiler.start_trace(str(scratch))
        took = loop(carried, marks)[1]
        jax.profiler.stop_trace()
        found = {}
        for kind in ("trace.json.gz", "xplane.pb"):
            for file in scratch.rglob(f"*.{kind}"):
                shutil.copy(file, folder / f"{name}.{kind}")
                found[f"{name}.{kind}"] = {"ms": [took] * steps, "marked": False}
        shutil.rmtree(scratch)
        return found

    return run


def jax_jobs() -> dict[str, Job]:
    keys = jax.random.split(jax.random.PRNGKey(0), 8)
    weights = [jax.random.normal(key, (2048, 2048), jnp.bfloat16) * 0.02 for key in keys]
    rows = jax.random.normal(keys[0], (4096, 2048), jnp.bfloat16)
    stacked, few = jnp.stack([one[:1024, :1024] for one in weights]), jnp.ones((64, 1024), jnp.bfloat16)

    def loss(weights: Any, rows: Any) -> Any:
        for one in weights:
            rows = jax.nn.gelu(rows @ one)
        return jnp.mean(jnp.square(rows.astype(jnp.float32)))

    @jax.jit
    def train(weights: Any, rows: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, rows)
        return [one - 1e-3 * slope.astype(one.dtype) for one, slope in zip(weights, slopes, strict=True)], value

    @jax.jit
    def several(weights: Any, rows: Any) -> Any:
        return jax.lax.scan(lambda carried, _: train(carried, rows), weights, None, length=8)

    @jax.jit
    def called(weights: Any, rows: Any) -> Any:
        told = jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct((), jnp.float32), loss(weights, rows))
        return [one * (1 - 1e-6) for one in weights], told

    @jax.jit
    def layers(rows: Any, _: Any) -> Any:
        rows = jax.lax.scan(lambda carried, one: (jax.nn.relu(carried @ one), None), rows, stacked)[0]
        return rows, rows[0, 0]

    fresh = np.random.default_rng(0).standard_normal((4096, 2048)).astype(np.float32)
    return {
        "jax_waited": looped(train, weights, rows, True, True),
        "jax_ahead": looped(train, weights, rows, True, False),
        "jax_unmarked": looped(train, weights, rows, False, False, 10),
        "jax_scan": looped(several, weights, rows, True, False, 4),
        "jax_scan_unmarked": looped(several, weights, rows, False, True, 4),
        "jax_callback": looped(called, weights, rows, True, True),
        "jax_input": looped(train, weights, fresh, True, False),
        "jax_layers_unmarked": looped(layers, few, few, False, False, 20),
    }
