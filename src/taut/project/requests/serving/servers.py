"""Requests of a serving scenario, drawn and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask
from taut.core.jit import expect
from taut.project.requests import queue_kernels as queue
from taut.project.requests.iteration_time import pace
from taut.project.requests.queue_simulation import (
    MOST_SERVERS,
    SPANS,
    Outcome,
    busy_share,
    flows,
    key_of,
    noise_tables,
    server_factors,
    settings_of,
    window_of,
    within,
    without_noise,
)
from taut.project.requests.serving import server_kernels as at
from taut.project.requests.serving.request_draws import Requests, draw
from taut.project.requests.serving.scenario import Promise, ServingScenario, mean_lengths
from taut.project.requests.serving.server_kernels import COUNTS, SETTINGS

# Tokens of an answer up to which as many requests as asked for are simulated, else fewer, down to FEWEST.
TOKENS, FEWEST = 250.0, 1_000
# Requests come for this many bursts, and as SPANS says, if that takes at most STRETCH times as many requests.
BURSTS, STRETCH = 10.0, 2.5
# Those of the kernel; by session is at random there.
ROUTES = ("random", "round-robin", "shortest", "session")


@dataclass(frozen=True)
class ServingOutcome(Outcome):
    """What became of the requests that came inside the window; NaN where there was no answer."""

    first_ns: Floats
    """Until the first token of the last part."""
    parts_ns: Floats
    """Requests × parts: latency of each part."""
    prompt: Ints
    output: Ints
    alone_ns: Floats
    """Latency on a server that does nothing else, without noise."""
    spent_ns: dict[str, Floats]
    """Where the latency went, on average over the parts of each request, by term."""
    worst_ns: Floats
    """Most that noise added to a single iteration, of those the request was in."""
    good_tokens: float
    """Mean tokens of the answers as promised that ended in the window."""
    copies_per_request: float

    @property
    def attained(self) -> float:
        """Share of the requests that were answered as promised, whenever that was."""
        return float(self.good.mean()) if len(self.good) else 0.0

    @property
    def batch(self) -> float:
        """Copies that a server works on at once, while it works."""
        return self.counts["loaded_ns"] / max(self.counts["busy_ns"], 1.0)

    @property
    def token_ns(self) -> Floats:
        """Time of each token after the first, on average over a request."""
        return np.asarray((self.took_ns - self.first_ns) / np.maximum(self.output - 1, 1))


def simulate(s: ServingScenario, requests: int, seed: int, hedge_ns: float = -1.0) -> ServingOutcome:
    """Simulate a number of requests (fewer, where each has many parts)."""
    v = s.serving
    servers, count = size_of(s, requests)
    drawn = draw(s, count, servers / s.servers, seed)
    parts = count * v.fan_out
    most = parts * (v.retries + 1) * (2 if hedge_ns >= 0 else 1)
    copies, times = np.full((most, 10), -1, np.int64), np.zeros((most, 5))
    state = np.full((parts, 4), -1, np.int64)
    state[:, [at.ATTEMPT, at.FAILED]] = 0
    answered, counts = np.full((parts, 2), -1.0), np.zeros(len(COUNTS))
    slots = np.zeros((servers, v.max_batch), np.int64)
    server_pace = np.zeros((servers, 4))
    server_pace[:, at.HABIT] = server_factors(s.noise, v.devices, servers, seed)
    server_pace[:, at.DRIFTED] = np.random.default_rng((seed, 13)).standard_normal(servers)
    heap = 6 * parts * (v.retries + 1) + servers + 8
    expect(parts * float(drawn.output.mean()))
    made = at.simulate(
        drawn.asked_ns,
        np.stack([drawn.prompt, drawn.fresh, drawn.output], axis=1),
        v.fan_out,
        key_of(seed, 0x5E21),
        kernel_settings(s, float(drawn.asked_ns[-1]), servers, hedge_ns),
        pace(s).base,
        noise_tables(s.noise, v.tp),
        copies,
        times,
        state,
        answered,
        np.zeros((servers, at.SERVER_COLUMNS), np.int64),
        slots,
        np.zeros_like(slots),
        server_pace,
        np.empty(heap),
        np.empty(heap, np.int64),
        np.empty(parts * (v.retries + 1)),
        np.empty(parts * (v.retries + 1), np.int64),
        counts,
    )
    return _outcome(s, drawn, servers, Made(copies[:made], times[:made], state, answered, counts))


@dataclass(frozen=True)
class Made:
    """The arrays that the kernel filled; server_kernels.py has their columns."""

    copies: Ints
    times: Floats
    parts: Ints
    answered: Floats
    counts: Floats


def size_of(s: ServingScenario, requests: int) -> tuple[int, int]:
    """(servers, requests) to simulate: requests come for many times as long as one takes, to fewer servers if need be."""
    v, a = s.serving, s.arrivals
    prompt, output = mean_lengths(a)
    alone_s = float(pace(s).alone_ns(prompt, prompt, output)) * 1e-9
    span_s = max(SPANS * alone_s, BURSTS * a.burst_s if a.process == "modulated" else 0.0)
    each = span_s * s.per_s / s.servers
    # Many parts, or long answers, take as long to simulate as more requests would.
    usual = max(min(requests, requests * TOKENS / (v.fan_out * output)), FEWEST)
    most = int(STRETCH * usual)
    least = min(max(2 * v.fan_out, 4), s.servers)
    servers = int(min(s.servers, max(MOST_SERVERS, 2 * v.fan_out), max(most / max(each, 1e-9), least)))
    count = max(usual, each * servers)
    if a.time_s:  # whole rounds of what was recorded, because an hour is not like the next
        rate = s.per_s * servers / s.servers
        once = len(a.time_s) * min(rate * (a.time_s[-1] - a.time_s[0]) / len(a.time_s), 1.0)
        count = ceil(count / once) * once
    return servers, int(min(count, most))


def _outcome(s: ServingScenario, drawn: Requests, servers: int, made: Made) -> ServingOutcome:
    """What the kernel left, by request."""
    fan_out, window = s.serving.fan_out, window_of(float(drawn.asked_ns[-1]))
    came, asked = drawn.came_ns, drawn.asked_ns
    first, done = (np.where(ns >= 0, ns, np.nan).reshape(-1, fan_out) for ns in made.answered.T)
    first_ns, ended = first.max(axis=1) - came, done.max(axis=1)
    good = keeps_promise(s.promise, first_ns, ended - came, drawn.output)
    here = within(window, asked)
    flow, good_flow = flows(window, int(here.sum()), ended, good)
    tokens = drawn.output[within(window, ended) & good]
    winner = made.parts[:, at.WINNER]
    times = np.where(winner[:, None] >= 0, made.times[np.maximum(winner, 0)], np.nan)

    def mean_of_parts(values: Floats) -> Floats:
        return np.asarray(values.reshape(-1, fan_out).mean(axis=1)[here])

    worked = made.times[:, queue.STARTED] >= 0
    counts = dict(zip(COUNTS, made.counts.tolist(), strict=True))
    return ServingOutcome(
        window_ns=window,
        came_ns=came[here],
        took_ns=(ended - came)[here],
        answered=np.isfinite(ended[here]),
        good=good[here],
        flow=flow,
        good_flow=good_flow,
        busy=busy_share(counts["busy_ns"], servers, window),
        discarded=float((worked & (made.copies[:, queue.STATE] == queue.DEAD)).sum() / max(worked.sum(), 1)),
        counts=counts,
        first_ns=first_ns[here],
        parts_ns=(done - came[:, None])[here],
        prompt=drawn.prompt[here],
        output=drawn.output[here],
        alone_ns=pace(s).alone_ns(drawn.prompt, drawn.fresh, drawn.output)[here],
        spent_ns={
            "leaves": (asked - came)[here],
            "earlier attempts": mean_of_parts(times[:, queue.SUBMITTED] - np.repeat(asked, fan_out)),
            "queue": mean_of_parts(times[:, queue.STARTED] - times[:, queue.SUBMITTED]),
            "transfer of keys and values": mean_of_parts(times[:, at.SENT_NS]),
            "jitter": mean_of_parts(times[:, at.NOISE_NS]),
            "slowest part": (ended - done.mean(axis=1))[here],
        },
        worst_ns=times[:, at.WORST_NS].reshape(-1, fan_out).max(axis=1)[here],
        good_tokens=float(tokens.mean()) if len(tokens) else 0.0,
        copies_per_request=counts["copies"] / len(made.parts),
    )


def keeps_promise(promise: Promise, first_ns: Floats, latency_ns: Floats, output: Ints) -> Mask:
    """Whether each request was answered as promised."""
    good = np.isfinite(latency_ns)
    for limit, took in (
        (promise.ttft_ms, first_ns),
        (promise.latency_ms, latency_ns),
        (promise.tpot_ms, (latency_ns - first_ns) / np.maximum(output - 1, 1)),
    ):
        if limit is not None:
            good &= np.nan_to_num(took, nan=np.inf) <= limit * 1e6
    return good


def kernel_settings(s: ServingScenario, span_ns: float, servers: int, hedge_ns: float) -> Floats:
    """The settings of the kernel, in the order of SETTINGS."""
    v, n, p = s.serving, s.noise, pace(s)
    # Of servers that only read prompts there is at least one, and one that does not.
    readers = min(max(round(v.prefill_share * servers), 1), servers - 1) if v.prefill_share > 0 else 0
    own = {
        "timeout_ns": v.timeout_ms * 1e6, "attempts": v.retries + 1, "backoff_ns": v.backoff_ms * 1e6, "max_batch": v.max_batch,
        "prefill_tokens": v.prefill_tokens, "chunk_tokens": v.chunk_tokens, "kv_tokens": s.kv_tokens / v.pp,
        "hedge_ns": hedge_ns, "queue_limit": v.queue_limit,
        "drop_ns": (s.promise.ttft_ms or 0.0) * 1e6 if v.drop_late else 0.0, "send_ns": p.send_ns, "hop_ns": p.hop_ns,
        "routing": ROUTES.index(v.routing), "readers": readers,
        "drift": n.drift_share if n.distribution != "none" else 0.0, "drift_left": exp(-1 / n.drift_steps),
    }  # fmt: skip
    return settings_of(SETTINGS, v, p, span_ns, own)


def without_jitter(s: ServingScenario) -> ServingScenario:
    """The scenario without jitter, bursts, attempts that fail and copies."""
    calm = replace(s.serving, stall_s=0.0, timeout_ms=0.0, retries=0, hedge_quantile=None, queue_limit=0, drop_late=False)
    return replace(s, serving=calm, noise=without_noise(s.noise), arrivals=replace(s.arrivals, stray=0.0))


def hedge_ns_of(s: ServingScenario, requests: int, seed: int) -> float:
    """When another server is asked: the quantile of the time to a first token without hedges; -1 for never."""
    share = s.serving.hedge_quantile
    if share is None or share == 0:
        return -1.0 if share is None else 0.0
    plain = simulate(replace(s, serving=replace(s.serving, hedge_quantile=None)), requests, seed)
    took = (plain.first_ns - plain.spent_ns["leaves"])[np.isfinite(plain.first_ns)]
    return float(np.quantile(took, share)) if len(took) else 0.0
