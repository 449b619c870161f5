"""Tasks of agents drawn and played: a few replicas stand for all, and a window without its edges for all time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.core.jit import expect
from taut.project.noise import REACH
from taut.project.requests.agents import task_kernels as at
from taut.project.requests.agents.scenario import AgentScenario
from taut.project.requests.agents.task_kernels import COUNTS, KNOBS, OUTCOMES, play
from taut.project.requests.fan_out import through
from taut.project.requests.serving.iteration_time import Pace, kv_tokens, pace_of
from taut.project.requests.serving.request_draws import strayed
from taut.project.requests.serving.servers import PATIENCE, SATURATED, STALL_AT, WINDOW, habit_of, tables_of
from taut.project.training.grid import mix

MOST_REPLICAS = 8
"""Replicas that are played: more are alike, and these stand for them."""
SPANS, STRETCH = 20.0, 4.0
"""Tasks come for so many times as long as one takes alone, if at most STRETCH times as many as asked for do so."""
MOST_CALLS = 4_000_000


@dataclass(frozen=True)
class Tasks:
    """What became of the tasks that came inside the window."""

    window_ns: tuple[float, float]
    replicas: int
    came_ns: Any
    took_ns: Any
    """Until they were done, or given up; NaN where neither had happened in the end."""
    good: Any
    """Whether they were done rightly and in time."""
    done: Any
    """Whether they had an answer, right or not."""
    outcome: Any
    """One of OUTCOMES."""
    sums: Any
    """Columns of ``play.py``."""
    calls: Any
    tool_calls: Any
    counts: dict[str, float]
    flow: float
    """Tasks that ended in the window over those that came in it."""
    good_flow: float
    """Those of them that were done rightly and in time."""

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return (self.window_ns[1] - self.window_ns[0]) * 1e-9

    @property
    def saturated(self) -> bool:
        """Whether tasks pile up."""
        return self.flow < SATURATED

    @property
    def good_share(self) -> float:
        """Share of the tasks that are done rightly and in time; where they pile up, those that end count."""
        return self.good_flow if self.saturated or not len(self.good) else float(self.good.mean())

    @property
    def busy(self) -> float:
        """Share of the window in which replicas worked."""
        return min(self.counts["busy_ns"] / (self.seconds * 1e9), 1.0)

    @property
    def thrown(self) -> float:
        """Share of the calls, of the model and of tools, whose result nobody took."""
        c = self.counts
        return (c["thrown"] + c["tools_thrown"]) / max(c["calls"] + c["tool_calls"], 1.0)


def pool(s: AgentScenario) -> Pace:
    """Times of a replica."""
    return pace_of(s.model, s.device, s.fabric, s.agents.tp, 1, s.agents.max_batch)


def sizes_of(s: AgentScenario) -> Any:
    """Tokens of the prompt and of the answer in each phase."""
    rows = {at.PLAN: s.plan, at.ACT: s.act, at.VERIFY: s.verify, at.ANSWER: s.answer}
    out = np.zeros((at.END, 2))
    for phase, call in rows.items():
        out[phase] = call.prompt, call.generated
    return out


def call_ns(s: AgentScenario, phase: int, running: int = 0, turn: int = 0) -> float:
    """A call beside so many others of the pool, without noise."""
    prompt, generated = sizes_of(s)[phase]
    knobs = knobs_of(s, 1.0, s.agents.replicas)
    prompt += s.agents.context_per_turn * turn
    return float(at.call_ns.plain(knobs, pool(s).base, float(prompt), float(generated), running))


def batch_of(s: AgentScenario) -> int:
    """Calls that a replica works on at once: as many as are allowed, and as its memory holds."""
    longest = float(sizes_of(s).sum(axis=1).max()) + s.agents.context_per_turn * s.agents.turns
    return max(int(min(s.agents.max_batch, kv_tokens(s.model, s.device, s.agents.tp, 1) / longest)), 1)


def calls_of(s: AgentScenario) -> int:
    """Calls of a task in which nothing goes wrong."""
    return 1 + s.agents.turns + sum(1 for call in (s.verify, s.answer) if call.generated)


def alone_ns(s: AgentScenario) -> float:
    """A task in an idle pool in which nothing goes wrong, tools at their median."""
    turns = s.agents.turns
    total = call_ns(s, at.PLAN) + turns * s.tools.p50_s * 1e9 * (s.tools.count > 0)
    total += sum(call_ns(s, at.ACT, turn=turn) for turn in range(turns))
    return total + sum(call_ns(s, p, turn=turns) for p, c in ((at.VERIFY, s.verify), (at.ANSWER, s.answer)) if c.generated)


def run(s: AgentScenario, tasks: int, seed: int) -> Tasks:
    """Play so many tasks, or more, so that they come for long enough."""
    replicas = min(s.agents.replicas, MOST_REPLICAS)
    per_s = s.agents.per_s * replicas / s.agents.replicas
    count = int(min(max(tasks, SPANS * alone_ns(s) * 1e-9 * per_s), STRETCH * tasks))
    rng = np.random.default_rng((seed, 21))
    came = strayed(rng.exponential(1 / per_s, count).cumsum(), s.agents.stray) * 1e9
    t = s.tools
    tool = through({0.5: t.p50_s, 0.99: t.p99_s}, t.tail) * 1e9
    knobs, rooms = knobs_of(s, float(came[-1]), replicas), 2 * count * calls_of(s)
    expect(float(rooms))
    while True:
        state, sums, counts = np.zeros((count, 11), np.int64), np.zeros((count, 8)), np.zeros(len(COUNTS))
        state[:, at.CALL] = -1
        heap = 4 * rooms + (s.agents.redos + 4) * count + 16
        made = play(
            came, int(mix(mix(seed & 0xFFFFFFFF) ^ 0xA6E7)), knobs, sizes_of(s), pool(s).base, tables_of(s.noise, s.agents.tp),
            habit_of(s.noise, s.agents.tp, replicas, seed), tool, REACH, state, sums, np.zeros((rooms, 4), np.int64),
            np.zeros((rooms, 5)), np.zeros(heap), np.zeros(heap, np.int64), np.zeros(max(t.count, 1)), np.zeros(2, np.int64),
            counts,
        )  # fmt: skip
        if made >= 0 or rooms >= MOST_CALLS:
            return _told(s, came, replicas, state, sums, counts)
        rooms *= 3


def _told(s: AgentScenario, came: Any, replicas: int, state: Any, sums: Any, counts: Any) -> Tasks:
    """What the kernel left, by task."""
    span = float(came[-1])
    window = WINDOW[0] * span, WINDOW[1] * span
    outcome = state[:, at.OUTCOME]
    took = np.where(outcome != at.OPEN, sums[:, at.DONE_NS] - came, np.nan)
    done = (outcome == at.RIGHT) | (outcome == at.WRONG)
    limit = s.agents.deadline_s * 1e9 or np.inf
    good = (outcome == at.RIGHT) & (np.nan_to_num(took, nan=np.inf) <= limit)
    here = (came >= window[0]) & (came < window[1])
    inside = (outcome != at.OPEN) & (sums[:, at.DONE_NS] >= window[0]) & (sums[:, at.DONE_NS] < window[1])
    many = max(int(here.sum()), 1)
    return Tasks(
        window, replicas, came[here], took[here], good[here], done[here], outcome[here], sums[here], state[here, at.CALLS],
        state[here, at.TOOL_CALLS], dict(zip(COUNTS, counts.tolist(), strict=True)), float(inside.sum()) / many,
        float((inside & good).sum()) / many,
    )  # fmt: skip


def knobs_of(s: AgentScenario, span_ns: float, replicas: int) -> Any:
    """What the kernel is told, in the order of KNOBS."""
    from scipy.special import ndtr

    a, t, q = s.agents, s.tools, s.quality
    places = min(a.concurrency * replicas / a.replicas if a.concurrency else np.inf, replicas * batch_of(s))
    p = pool(s)
    values = {
        "turns": a.turns, "redos": a.redos, "failure": a.call_failure, "timeout_ns": a.call_timeout_s * 1e9,
        "attempts": s.attempts, "backoff_ns": a.backoff_s * 1e9,
        "retry_budget": 1e9 if a.retry_budget is None else a.retry_budget, "cancels": a.cancels,
        "deadline_ns": a.deadline_s * 1e9, "propagates": a.deadline_propagates,
        "token_budget": a.token_budget, "places": max(places, 1), "replicas": replicas, "fallback_after": a.fallback_after,
        "fallback_share": a.fallback_share, "cached": a.prefix_cache_share, "growth": a.context_per_turn,
        "stall_from": STALL_AT * span_ns, "stall_to": STALL_AT * span_ns + a.stall_s * 1e9, "tools": t.count,
        "tool_failure": t.failure, "tool_timeout_ns": t.timeout_s * 1e9, "tool_attempts": s.tool_attempts,
        "tool_cached": t.cache_share, "tool_hedge_ns": -1.0 if t.hedge_s is None else t.hedge_s * 1e9,
        "speculation": t.speculation_share, "tool_p50_ns": t.p50_s * 1e9, "right": q.right, "fallback_right": q.fallback_right,
        "passes_right": ndtr(q.separation - q.threshold), "passes_wrong": ndtr(-q.threshold), "kv_ns": p.kv_ns,
        "score_ns": p.score_ns, "until_ns": PATIENCE * span_ns, "from_ns": WINDOW[0] * span_ns, "to_ns": WINDOW[1] * span_ns,
    }  # fmt: skip
    return np.array([float(values[name]) for name in KNOBS])


def still(s: AgentScenario) -> AgentScenario:
    """The scenario in which nothing strays, fails, or is done twice."""
    a = replace(
        s.agents, stray=0.0, call_failure=0.0, call_timeout_s=0.0, stall_s=0.0, token_budget=0, deadline_propagates=False,
        fallback_after=0,
    )  # fmt: skip
    tools = replace(s.tools, failure=0.0, timeout_s=0.0, hedge_s=None, p99_s=s.tools.p50_s)
    quiet = replace(s.noise, distribution="none", slow_share=0.0)
    quality = replace(s.quality, right=1.0, threshold=-40.0)
    return replace(s, agents=replace(a, deadline_s=0.0), tools=tools, quality=quality, noise=quiet)


def shares(outcome: Any) -> dict[str, float]:
    """Share of the tasks by what became of them."""
    return {name: float((outcome == k).mean()) if len(outcome) else 0.0 for k, name in enumerate(OUTCOMES)}
