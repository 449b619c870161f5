"""Tasks of agents, drawn and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.jit import expect
from taut.project.requests.agents import task_kernels as at
from taut.project.requests.agents.scenario import AgentScenario
from taut.project.requests.agents.task_kernels import COUNTS, SETTINGS
from taut.project.requests.fan_out import through
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
    spread_arrivals,
    window_of,
    within,
    without_noise,
)

# At most this many times as many tasks as asked for are simulated, so that they come for as long as SPANS says.
STRETCH = 4.0
MOST_CALLS = 4_000_000


@dataclass(frozen=True)
class AgentOutcome(Outcome):
    """What became of the tasks that came inside the window."""

    outcome: Ints
    """One of OUTCOMES."""
    sums: Floats
    """Columns of task_kernels.py."""
    calls: Ints
    tool_calls: Ints


def call_sizes(s: AgentScenario) -> Floats:
    """Tokens of the prompt and of the answer in each phase."""
    rows = {at.PLAN: s.plan, at.ACT: s.act, at.VERIFY: s.verify, at.ANSWER: s.answer}
    out = np.zeros((at.END, 2))
    for phase, call in rows.items():
        out[phase] = call.prompt, call.generated
    return out


def call_ns(s: AgentScenario, phase: int, running: int = 0, turn: int = 0, settings: Floats | None = None) -> float:
    """Time of a call beside others that run in the pool, without noise, ns; ``settings`` of the kernel, if known."""
    prompt, generated = call_sizes(s)[phase]
    settings = kernel_settings(s, 1.0, s.agents.replicas) if settings is None else settings
    prompt += s.agents.context_per_turn * turn
    return float(at.call_ns.plain(settings, pace(s).base, float(prompt), float(generated), running))


def batch_of(s: AgentScenario) -> int:
    """Calls that a replica works on at once: as many as are allowed, and as its memory holds."""
    longest = float(call_sizes(s).sum(axis=1).max()) + s.agents.context_per_turn * s.agents.turns
    return max(int(min(s.agents.max_batch, s.kv_tokens / longest)), 1)


def phases(s: AgentScenario) -> list[tuple[int, int]]:
    """(phase, turns done before it) of every call of a task in which nothing goes wrong."""
    turns = s.agents.turns
    ends = [(phase, turns) for phase, call in ((at.VERIFY, s.verify), (at.ANSWER, s.answer)) if call.generated]
    return [(at.PLAN, 0), *((at.ACT, turn) for turn in range(turns)), *ends]


def alone_ns(s: AgentScenario) -> float:
    """A task in an idle pool in which nothing goes wrong, tools at their median."""
    tools = s.agents.turns * s.tools.p50_s * 1e9 * (s.tools.count > 0)
    settings = kernel_settings(s, 1.0, s.agents.replicas)
    return tools + sum(call_ns(s, phase, turn=turn, settings=settings) for phase, turn in phases(s))


def simulate(s: AgentScenario, tasks: int, seed: int) -> AgentOutcome:
    """Simulate a number of tasks, or more, so that they come for long enough."""
    replicas = min(s.agents.replicas, MOST_SERVERS)
    per_s = s.per_s * replicas / s.agents.replicas
    count = int(min(max(tasks, SPANS * alone_ns(s) * 1e-9 * per_s), STRETCH * tasks))
    rng = np.random.default_rng((seed, 21))
    came = spread_arrivals(rng.exponential(1 / per_s, count).cumsum(), s.agents.stray) * 1e9
    tool = through({0.5: s.tools.p50_s, 0.99: s.tools.p99_s}, s.tools.tail) * 1e9
    settings, rooms = kernel_settings(s, float(came[-1]), replicas), 2 * count * len(phases(s))
    expect(float(rooms))
    while True:
        state, sums, counts = np.zeros((count, 11), np.int64), np.zeros((count, 8)), np.zeros(len(COUNTS))
        state[:, at.CALL] = -1
        # One end of each call; of a task one deadline and one time to go on.
        heap = rooms + 2 * count + 16
        made = at.simulate(
            came,
            key_of(seed, 0xA6E7),
            settings,
            call_sizes(s),
            pace(s).base,
            noise_tables(s.noise, s.agents.tp),
            server_factors(s.noise, s.agents.tp, replicas, seed),
            tool,
            state,
            sums,
            np.empty((rooms, 4), np.int64),
            np.empty((rooms, 5)),
            np.zeros((1, 3), np.int64),
            np.empty(heap),
            np.empty(heap, np.int64),
            np.empty(rooms),
            np.empty(rooms, np.int64),
            np.zeros(max(s.tools.count, 1)),
            counts,
        )
        if made >= 0 or rooms >= MOST_CALLS:
            return _outcome(s, came, state, sums, counts)
        rooms *= 3


def _outcome(s: AgentScenario, came: Floats, state: Ints, sums: Floats, totals: Floats) -> AgentOutcome:
    """What the kernel left, by task."""
    window = window_of(float(came[-1]))
    outcome = state[:, at.OUTCOME]
    ended = np.where(outcome != at.OPEN, sums[:, at.DONE_NS], np.nan)
    took = ended - came
    good = (outcome == at.RIGHT) & (np.nan_to_num(took, nan=np.inf) <= (s.agents.deadline_s * 1e9 or np.inf))
    here = within(window, came)
    flow, good_flow = flows(window, int(here.sum()), ended, good)
    counts = dict(zip(COUNTS, totals.tolist(), strict=True))
    return AgentOutcome(
        window_ns=window,
        came_ns=came[here],
        took_ns=took[here],
        answered=((outcome == at.RIGHT) | (outcome == at.WRONG))[here],
        good=good[here],
        flow=flow,
        good_flow=good_flow,
        busy=busy_share(counts["busy_ns"], 1, window),
        discarded=(counts["discarded"] + counts["tools_discarded"]) / max(counts["calls"] + counts["tool_calls"], 1.0),
        counts=counts,
        outcome=outcome[here],
        sums=sums[here],
        calls=state[here, at.CALLS],
        tool_calls=state[here, at.TOOL_CALLS],
    )


def kernel_settings(s: AgentScenario, span_ns: float, replicas: int) -> Floats:
    """The settings of the kernel, in the order of SETTINGS."""
    a, t, q = s.agents, s.tools, s.quality
    places = min(a.concurrency * replicas / a.replicas if a.concurrency else np.inf, replicas * batch_of(s))
    own = {
        "timeout_ns": a.call_timeout_s * 1e9, "attempts": s.attempts, "backoff_ns": a.backoff_s * 1e9, "turns": a.turns,
        "redos": a.redos, "failure": a.call_failure, "deadline_ns": a.deadline_s * 1e9, "propagates": a.deadline_propagates,
        "token_budget": a.token_budget, "places": max(places, 1), "replicas": replicas, "fallback_after": a.fallback_after,
        "fallback_share": a.fallback_share, "cached": a.prefix_cache_share, "growth": a.context_per_turn, "tools": t.count,
        "tool_failure": t.failure, "tool_timeout_ns": t.timeout_s * 1e9, "tool_attempts": s.tool_attempts,
        "tool_cached": t.cache_share, "tool_hedge_ns": -1.0 if t.hedge_s is None else t.hedge_s * 1e9,
        "speculation": t.speculation_share, "tool_p50_ns": t.p50_s * 1e9, "right": q.right, "fallback_right": q.fallback_right,
        "passes_right": NormalDist().cdf(q.separation - q.threshold), "passes_wrong": NormalDist().cdf(-q.threshold),
    }  # fmt: skip
    return settings_of(SETTINGS, a, pace(s), span_ns, own)


def without_jitter(s: AgentScenario) -> AgentScenario:
    """The scenario without jitter, failures and work done twice."""
    a = replace(
        s.agents,
        stray=0.0,
        call_failure=0.0,
        call_timeout_s=0.0,
        stall_s=0.0,
        token_budget=0,
        deadline_s=0.0,
        deadline_propagates=False,
        fallback_after=0,
    )
    tools = replace(s.tools, failure=0.0, timeout_s=0.0, hedge_s=None, p99_s=s.tools.p50_s)
    quality = replace(s.quality, right=1.0, threshold=-40.0)
    return replace(s, agents=a, tools=tools, quality=quality, noise=without_noise(s.noise))
