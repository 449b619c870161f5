"""Requests drawn and played: a few servers stand for all, and a window without its edges for all time."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.jit import expect
from taut.project.noise import GRID, REACH, longest, odds
from taut.project.requests.serving import server_kernels as at
from taut.project.requests.serving.iteration_time import kv_tokens, pace
from taut.project.requests.serving.request_draws import Requests, draw
from taut.project.requests.serving.scenario import MOST_SERVERS, Promise, ServingScenario, mean_lengths
from taut.project.requests.serving.server_kernels import COUNTS, KNOBS, play
from taut.project.training.grid import mix
from taut.project.training.scenario import Noise

TOKENS, FEWEST = 250.0, 1_000
"""Tokens of an answer up to which as many requests as asked for are played, else fewer, down to FEWEST."""
SPANS, BURSTS, STRETCH = 20.0, 10.0, 2.5
"""Requests come for so many times as long as one takes alone, and as a burst, if at most STRETCH times as many do so."""
WINDOW = 0.2, 0.95
"""Of the time in which requests arrive: what lies before fills the servers, what lies behind has no successors."""
STALL_AT = 1 / 3
"""Of the time in which requests arrive: when a stall begins."""
PATIENCE = 3.0
"""Times that span after which what is left unanswered stays so."""
SATURATED = 0.95
"""Below this share of answers for requests, servers fall behind; above it is chance."""
ROUTES = ("random", "round-robin", "shortest", "session")


@dataclass(frozen=True)
class Played:
    """What became of the requests that came inside the window; NaN where there was no answer."""

    window_ns: tuple[float, float]
    servers: int
    came_ns: Any
    first_ns: Any
    """Until the first token of the last part."""
    latency_ns: Any
    """Until the last token of the last part."""
    parts_ns: Any
    """Requests × parts: latency of each part."""
    prompt: Any
    output: Any
    alone_ns: Any
    """Latency on a server that does nothing else, without noise."""
    spent_ns: dict[str, Any]
    """Where the latency went, on average over the parts of each request, by term."""
    worst_ns: Any
    """Most that a single iteration strayed, of those the request was in."""
    thrown: float
    """Share of the copies worked on whose result nobody took."""
    counts: dict[str, float]
    asked_ns: Any
    """Of all requests, also outside the window: when they came to a server …"""
    ended_ns: Any
    """… when they ended (-1: never) …"""
    kept: Any
    """… and whether as promised."""
    tokens: Any
    """… and the tokens of their answers."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.window_ns[1] - self.window_ns[0]) * 1e-9

    @property
    def inside(self) -> Any:
        """Of all requests: whether they ended in the window."""
        return (self.ended_ns >= self.window_ns[0]) & (self.ended_ns < self.window_ns[1])

    @property
    def offered_per_s(self) -> float:
        """Requests that came."""
        return len(self.came_ns) / self.seconds

    @property
    def flow(self) -> float:
        """Answers that ended in the window over requests that came in it: below one where servers fall behind."""
        return float(self.inside.sum()) / max(len(self.came_ns), 1)

    @property
    def saturated(self) -> bool:
        """Whether servers fall behind (or fail) what comes."""
        return self.flow < SATURATED

    @property
    def attained(self) -> float:
        """Share of the requests that were answered as promised, whenever that was."""
        return float(self.kept[self.here].mean()) if self.here.any() else 0.0

    @property
    def here(self) -> Any:
        """Of all requests: whether they came in the window."""
        return (self.asked_ns >= self.window_ns[0]) & (self.asked_ns < self.window_ns[1])

    @property
    def done_share(self) -> float:
        """Share of the requests that are answered as they come."""
        return self.flow if self.saturated else float(np.isfinite(self.latency_ns).mean())

    @property
    def good_share(self) -> float:
        """Share of the requests that are answered as they come and as promised; where they pile up, those that end count."""
        ended = float((self.inside & self.kept).sum()) / max(len(self.came_ns), 1)
        return ended if self.saturated else self.attained

    @property
    def busy(self) -> float:
        """Share of the window in which servers worked."""
        return min(self.counts["busy_ns"] / (self.servers * self.seconds * 1e9), 1.0)

    @property
    def batch(self) -> float:
        """Copies that a server works on at once, while it works."""
        return self.counts["loaded_ns"] / max(self.counts["busy_ns"], 1.0)


def run(s: ServingScenario, requests: int, seed: int, hedge_ns: float = -1.0) -> Played:
    """Play so many requests (fewer, where each has many parts)."""
    v = s.serving
    servers, count = size_of(s, requests)
    drawn = draw(s, count, servers / s.servers, seed)
    span = float(drawn.asked_ns[-1])
    parts = count * v.fan_out
    most = parts * (v.retries + 1) * (2 if hedge_ns >= 0 else 1)
    copies, times = np.full((most, 9), -1, np.int64), np.zeros((most, 5))
    state = np.full((parts, 4), -1, np.int64)
    state[:, [at.NOW_AT, at.FAILED]] = 0
    answered, counts = np.full((parts, 2), -1.0), np.zeros(len(COUNTS))
    slots = np.zeros((servers, v.max_batch), np.int64)
    heap = 6 * parts * (v.retries + 1) + servers + 8
    expect(parts * float(drawn.output.mean()))
    drift = np.random.default_rng((seed, 13)).standard_normal(servers)
    made = play(
        drawn.asked_ns, drawn.prompt, drawn.fresh, drawn.output, v.fan_out, int(mix(mix(seed & 0xFFFFFFFF) ^ 0x5E21)),
        knobs_of(s, span, servers, hedge_ns), pace(s).base, tables_of(s.noise, v.tp), REACH,
        habit_of(s.noise, v.tp * v.pp, servers, seed), drift, copies, times, state, answered, np.zeros((servers, 7), np.int64),
        slots, np.zeros_like(slots), np.zeros(servers), np.zeros(servers), np.zeros(heap), np.zeros(heap, np.int64), counts,
    )  # fmt: skip
    return _told(s, drawn, servers, copies[:made], times[:made], state, answered, counts)


def size_of(s: ServingScenario, requests: int) -> tuple[int, int]:
    """(servers, requests) to play: so that requests come for many times as long as one takes, with fewer servers if need be."""
    v, a = s.serving, s.arrivals
    prompt, output = mean_lengths(a)
    alone_s = float(pace(s).alone_ns(prompt, prompt, output)) * 1e-9
    span_s = max(SPANS * alone_s, BURSTS * a.burst_s if a.process == "modulated" else 0.0)
    each = span_s * s.per_s / s.servers
    # Many parts, or long answers, take as long to play as more requests would.
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


def _told(
    s: ServingScenario, drawn: Requests, servers: int, copies: Any, times: Any, state: Any, answered: Any, counts: Any
) -> Played:
    """What the kernel left, by request."""
    fan, span = s.serving.fan_out, float(drawn.asked_ns[-1])
    window = WINDOW[0] * span, WINDOW[1] * span
    done = np.where(answered[:, 1] >= 0, answered[:, 1], np.nan).reshape(-1, fan)
    first = np.where(answered[:, 0] >= 0, answered[:, 0], np.nan).reshape(-1, fan).max(axis=1)
    came, asked = drawn.came_ns, drawn.asked_ns
    ended = done.max(axis=1)
    here = (asked >= window[0]) & (asked < window[1])
    won = state[:, at.WINNER]
    mine = times[np.maximum(won, 0)]
    mine[won < 0] = np.nan

    def spent(values: Any) -> Any:
        return values.reshape(-1, fan).mean(axis=1)[here]

    p = pace(s)
    alone = p.alone_ns(drawn.prompt, drawn.fresh, drawn.output)
    terms = {
        "leaves": (asked - came)[here],
        "earlier attempts": spent(mine[:, at.SUBMITTED] - np.repeat(asked, fan)),
        "queue": spent(mine[:, at.ADMITTED] - mine[:, at.SUBMITTED]), "transfer of keys and values": spent(mine[:, at.SENT_NS]),
        "jitter": spent(mine[:, at.STRAYED]), "slowest part": (ended - done.mean(axis=1))[here],
    }  # fmt: skip
    worked = times[:, at.ADMITTED] >= 0
    thrown = float((worked & (copies[:, at.STATE] == at.DEAD)).sum() / max(worked.sum(), 1))
    return Played(
        window, servers, came[here], (first - came)[here], (ended - came)[here], (done - came[:, None])[here],
        drawn.prompt[here], drawn.output[here], alone[here], terms,
        mine[:, at.WORST].reshape(-1, fan).max(axis=1)[here], thrown, dict(zip(COUNTS, counts.tolist(), strict=True)),
        asked, np.nan_to_num(ended, nan=-1.0), kept(s.promise, first - came, ended - came, drawn.output), drawn.output,
    )  # fmt: skip


def kept(promise: Promise, first_ns: Any, latency_ns: Any, output: Any) -> Any:
    """Whether each request was answered as promised."""
    good = np.isfinite(latency_ns)
    for limit, took in (
        (promise.ttft_ms, first_ns), (promise.latency_ms, latency_ns),
        (promise.tpot_ms, (latency_ns - first_ns) / np.maximum(output - 1, 1)),
    ):  # fmt: skip
        if limit is not None:
            good &= np.nan_to_num(took, nan=np.inf) <= limit * 1e6
    return good


def knobs_of(s: ServingScenario, span_ns: float, servers: int, hedge_ns: float) -> Any:
    """What the kernel is told, in the order of KNOBS."""
    v, n, p = s.serving, s.noise, pace(s)
    values = {
        "max_batch": v.max_batch, "prefill_tokens": v.prefill_tokens, "chunk_tokens": v.chunk_tokens,
        "kv_tokens": kv_tokens(s.model, s.device, v.tp, v.pp) / v.pp, "timeout_ns": v.timeout_ms * 1e6, "retries": v.retries,
        "backoff_ns": v.backoff_ms * 1e6, "retry_budget": 1e9 if v.retry_budget is None else v.retry_budget,
        "cancels": v.cancels, "hedge_ns": hedge_ns, "queue_limit": v.queue_limit,
        "drop_ns": (s.promise.ttft_ms or 0.0) * 1e6 if v.drop_late else 0.0, "send_ns": p.send_ns, "hop_ns": p.hop_ns,
        "kv_ns": p.kv_ns, "score_ns": p.score_ns, "routing": ROUTES.index(v.routing), "readers": readers_of(s, servers),
        "drift": n.drift_share if n.distribution != "none" else 0.0, "drift_left": exp(-1 / n.drift_steps),
        "stall_from": STALL_AT * span_ns, "stall_to": STALL_AT * span_ns + v.stall_s * 1e9,
        "until_ns": PATIENCE * span_ns, "from_ns": WINDOW[0] * span_ns, "to_ns": WINDOW[1] * span_ns,
    }  # fmt: skip
    return np.array([float(values[name]) for name in KNOBS])


def readers_of(s: ServingScenario, servers: int) -> int:
    """Servers that only read prompts."""
    share = s.serving.prefill_share
    return min(max(round(share * servers), 1), servers - 1) if share > 0 else 0


def tables_of(n: Noise, tp: int) -> Any:
    """Quantiles of an iteration's work over its mean, of what strays beside it (longest of tp devices each), and of a drift."""
    from scipy.special import ndtri

    quiet = n.distribution == "none" or n.step_spread == 0
    lower, upper = odds(GRID)
    drift = np.where(GRID < 0, ndtri(lower), -ndtri(upper))
    return np.stack([longest(n, tp), longest(Noise("none" if quiet else "gaussian", n.step_spread), tp), drift])


def habit_of(n: Noise, devices: int, servers: int, seed: int) -> Any:
    """How many times as long as others each server takes for good: the slowest of its devices counts."""
    rng = np.random.default_rng((seed, 12))
    factor = np.ones((servers, devices))
    if n.distribution != "none":
        factor += n.ranks_spread * rng.standard_normal(factor.shape)
    factor *= np.where(rng.random(factor.shape) < n.slow_share, n.slow_factor, 1.0)
    return np.maximum(factor, 0.0).max(axis=1)


def still(s: ServingScenario) -> ServingScenario:
    """The scenario without jitter, bursts, attempts that fail and copies."""
    calm = replace(s.serving, stall_s=0.0, timeout_ms=0.0, retries=0, hedge_quantile=None, queue_limit=0, drop_late=False)
    noise = replace(s.noise, distribution="none", slow_share=0.0)
    return replace(s, serving=calm, noise=noise, arrivals=replace(s.arrivals, stray=0.0))


def hedge_ns_of(s: ServingScenario, requests: int, seed: int) -> float:
    """When another server is asked: when so many requests have their first token if nobody asks twice; -1 for never."""
    share = s.serving.hedge_quantile
    if share is None or share == 0:
        return -1.0 if share is None else 0.0
    plain = run(replace(s, serving=replace(s.serving, hedge_quantile=None)), requests, seed)
    took = (plain.first_ns - plain.spent_ns["leaves"])[np.isfinite(plain.first_ns)]
    return float(np.quantile(took, share)) if len(took) else 0.0
