"""Simulated training jobs with known faults, and a blind score of what ``taut analyze`` says about them.

    python validation/simulated_jobs.py --cases 200 --seed 1 [--jobs 2] [--json OUT] [--kinds NAME,NAME]

A job is a program of operations (compute, collectives, pipeline hops), played step by step for all ranks: an operation begins
when its lane and its inputs are free, a collective when its last member has arrived. All durations are drawn first, and played
with and without the fault: the difference of the walls over the wall from onset to end is the true saving. The size of a fault
is searched for a saving of 1.2–60 % (a fifth below 3 %, a fifth in 3–5 %). The same (kind, seed) gives the same bytes.

Kinds that the recorded data cannot tell, declared before any score was seen (3 of 54 faulty kinds, 3 % of cases):
half_role_always and two_ranks_always (half of the ranks of a role slower from the first step: either half may be the unusual
one) and all_always (all ranks slower from the first step: nothing to compare with). They are not in the bands: the right first
suspect counts (for all_always also nothing found), as it does for 2 or 3 ranks. Never asked for: a link inside the ring of a
collective (its place is the group, or all ranks), a stage or a rank without two peers that is always slower. An interface is
right by rank, name, or links that are all at it; five unequal ranks by the worst with any others; two faults singly or both.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import count, cycle, product
from pathlib import Path
from types import SimpleNamespace as Bag
from typing import Any

import numpy as np
from numpy.random import Generator

HOPS = {"forward_recv": ("send_next", "recv_prev"), "backward_recv": ("send_prev", "recv_next")}
EVENT = ("cat", "name", "ts", "dur", "pid", "tid", "args")
HOST_OPS = ("data_load", "checkpoint_save", "logging", "gc")
WORDS = {"flat": "ddp,fsdp,tpdp", "any": "ddp,fsdp,tpdp,pipe,ddp_kineto,steps", "kineto": "ddp_kineto,fsdp_kineto", "-": "",
         "dp": "ddp,fsdp", "lasting": "always,since,span", "later": "since,span,ramp", "now": "always,since"}  # fmt: skip
MIN_STEPS = {"since": 16, "span": 20, "ramp": 20, "periodic": 16, "intermittent": 20, "blocks": 24, "single": 10, "always": 5}
# Of every kind: name, place, mechanisms (of healthy jobs what is unusual), shapes, layouts, needs.
HEALTHY = """plain none - - any; plain_red_noise none red - any; plain_pipeline none - - pipe; plain_kineto none - - kineto;
plain_step_times none - - steps; plain_skewed_clocks none skew - flat,pipe; plain_habits none habits - any; rare_stalls none
tails - any; stalls_everywhere none stalls - any; two_ranks none - - dp,steps ranks=2-2; three_ranks none - - dp,steps
ranks=3-3; five_steps none - - any steps=5-5; variable_lengths none lengths - any; uneven_batches none uneven - flat; warm_up
none warm - any; logging_steps none logging - flat; evaluation_steps none evaluation - flat; checkpoints_of_all none checkpoints
- flat; imbalanced_pipeline none imbalanced - pipe; uneven_ends none ends - pipe; embedding_stage none embedding - pipe; elastic
none elastic - ddp; batch_change none batch - dp,pipe; curriculum none curriculum - flat"""
FAULTS = """rank_longer rank longer lasting flat; rank_one_class rank one_class lasting flat; rank_new_ops rank new_ops lasting
flat; rank_more_ops rank more_ops lasting flat; rank_gaps rank gaps lasting flat; rank_loader rank loader lasting,intermittent
dp; rank_loader_ramp rank loader ramp dp; rank_ramp rank longer,gaps ramp flat; rank_periodic rank longer,gc periodic flat;
rank_intermittent rank longer,one_class intermittent flat; rank_stalls rank gc intermittent flat,pipe; rank_recorded_gc rank
gc_ops intermittent,periodic flat; rank_jitter rank jitter now flat; rank_throttle rank longer blocks flat; rank_accident rank
gc,longer single flat; rank_checkpoint rank checkpoint periodic flat; rank0_checkpoint rank0 checkpoint periodic flat;
rank_pipeline_past rank longer,gaps,new_ops later pipe; rank_pipeline_peers rank longer,one_class always pipe dp=3; rank_kineto
rank longer,one_class,new_ops,loader lasting kineto; rank_kineto_host rank gaps,gc now,intermittent ddp_kineto;
rank0_kineto_checkpoint rank0 checkpoint periodic ddp_kineto; rank_step_times rank longer lasting,ramp,intermittent,periodic
steps; rank_few_steps rank longer,gaps always flat steps=5-8; rank_of_three rank longer,gaps lasting dp ranks=3-3;
rank_red_noise rank longer now flat noise=red; rank_variable_lengths rank longer,more_ops now flat noise=lengths; host_longer
host longer,one_class lasting flat hosts=3; host_loader host loader now,intermittent dp hosts=3; host_neighbour host gaps,longer
intermittent,blocks flat hosts=3; stage_longer stage longer,one_class later pipe dp=2; stage_new_ops stage new_ops,more_ops
since,span,periodic pipe dp=2; replica_longer replica longer lasting pipe,tpdp dp=3; device_model model longer always kineto
hosts=3; tensor_group_bandwidth tp_group bandwidth lasting tpdp dp=3; data_group_bandwidth dp_group bandwidth,latency lasting
tpdp tp=4; group_jitter tp_group comm_jitter now tpdp dp=3; stage_group_bandwidth dp_group bandwidth since,span pipe dp=2;
link_bandwidth link bandwidth lasting pipe pp=4; link_latency link latency now pipe pp=4; link_jitter link comm_jitter now pipe
pp=4; link_episodes link bandwidth intermittent,blocks,ramp pipe pp=3; interface_bandwidth interface bandwidth lasting pipe pp=3
dp=3; fabric_slower fabric bandwidth,latency since,span dp; all_longer all longer,one_class since,span flat; all_gaps all gaps
since,span flat; all_loader all loader since,intermittent,periodic dp; all_accident all gc single flat; two_ranks_slower two
longer,gaps,new_ops lasting flat; rank_and_link rank_link longer since pipe pp=3; five_unequal_ranks five longer,gaps now flat
ranks=16-64; half_role_always half longer always flat; all_always all longer always flat; two_ranks_always rank longer always
ddp,steps ranks=2-2"""
UNTELLABLE = ("half_role_always", "all_always", "two_ranks_always")


def kinds(text: str) -> dict[str, Bag]:
    """The kinds of a table, by name."""
    out = {}
    for row in text.split(";"):
        name, place, *cells = row.split()
        lists = [[w for word in cell.split(",") for w in WORDS.get(word, word).split(",") if w] for cell in cells[:3]]
        need: dict[str, Any] = dict(word.split("=") for word in cells[3:])
        need = {k: tuple(map(int, v.split("-"))) if "-" in v else int(v) if v.isdigit() else v for k, v in need.items()}
        out[name] = Bag(place=place, mechanisms=lists[0], shapes=lists[1], layouts=lists[2], need=need)
    return out


SOUND, FAULTY = kinds(HEALTHY), kinds(FAULTS)


def node(what: str, name: str, ranks: np.ndarray, ms: Any = 0.0, size: float = 1, part: int = -1, **rest: Any) -> Bag:
    """One operation of a step: ``work`` of ranks, ``meet`` of groups (rows), ``hop`` of two rows of ranks, wait, restart."""
    usual = {"groups": (), "blocking": False, "source": -1, "on": None} | rest
    return Bag(what=what, name=name, ranks=ranks, base_ms=ms, size=int(size), part=part, **usual)


class Job:
    """Ranks, hosts, stages and replicas, the program of a step, its noise, and how it is played."""

    def __init__(self, kind: Bag, style: str, rng: Generator) -> None:
        ask = kind.need.get
        pp = int(rng.integers(ask("pp", 2), 9)) if style == "pipe" else 1
        self.tp = int(rng.choice([n for n in (2, 4, 8) if n >= ask("tp", 2)])) if style == "tpdp" else 1
        dp = int(rng.integers(ask("dp", 2 if self.tp > 1 else 1), 9))
        if style not in ("pipe", "tpdp"):
            low, high = ask("ranks", (16, 16) if "elastic" in kind.mechanisms else (4, 16 if "kineto" in style else 64))
            dp = round(low * (high / low) ** rng.random())
        self.layout, self.every, units = style, np.arange(pp * self.tp * dp), pp * dp
        most = max(min(8, units // (2 if ask("hosts") and self.tp == 1 else 1)), 1)
        self.host = self.every // self.tp * int(rng.integers(min(ask("hosts", 1), most), most + 1)) // units
        self.ranks, self.stage, self.dp = len(self.every), self.every // (dp * self.tp), self.every // self.tp % dp
        self.step_ms, self.share, self.wide = 80 * 50 ** rng.random(), rng.uniform(0.05, 0.4), rng.uniform(2, 8)
        self.groups, self.nodes, self.slots, self.steps = dict[str, np.ndarray](), list[Bag](), list[np.ndarray](), 0

    def meeting(self, name: str, groups: dict[str, np.ndarray], ms: float, blocking: bool) -> Bag:
        """A collective of groups; those whose ring leaves a host take ``ms``, if there are any, the others a part of it."""
        self.groups.update(groups)
        crosses = np.array([len(np.unique(self.host[members])) > 1 for members in groups.values()])
        cost = ms * np.where(crosses | ~crosses.any(), 1.0, 1 / self.wide)
        return node("meet", name, np.array(list(groups.values())), cost, ms * 1e5 + 4, groups=tuple(groups), blocking=blocking)

    def flat_program(self, n: int, added: str, ranks: np.ndarray, world: str = "world") -> list[Bag]:
        """A step of ranks that all do the same: work, ``*`` collectives beside it, ``!`` those it waits for, ``|`` a wait."""
        attention, mlp, end = "!all_reduce_attention@tp 1;", "!all_reduce_mlp@tp 1;", "|;optimizer .03"
        tensor = f"attention_forward .12;{attention}mlp_forward .2;{mlp}mlp_backward .4;{mlp}attention_backward .24;{attention}"
        programs = {
            "steps": "forward .33;backward .65;!barrier 0",
            "tpdp": tensor + "!all_reduce_gradients@dp .5;" + end,
            "fsdp": "*all_gather .3;forward .33;|;" * n + "*all_gather .3;|;backward .63;*reduce_scatter .4;" * n + end,
            "ddp": "forward .33;" * n + "backward .63;*all_reduce 1;" * n + end,
        }
        words = f"data_load .01;{programs[self.layout.split('_')[0]]}{added}".split(";")
        times, out = Counter(words), []
        tp = {f"tp_{d}": ranks[self.dp[ranks] == d] for d in np.unique(self.dp[ranks])}
        groups = {"": {world: ranks}, "tp": tp, "dp": {f"dp_{i}": ranks[i :: self.tp] for i in range(self.tp)}}
        for word in words:
            name, _, split = word.split()[0].partition("@")
            ms = float(word.split()[-1]) * self.step_ms / times[word] if word != "|" else 0.0
            if name[0] in "*!":
                out.append(self.meeting(name[1:], groups[split], ms * self.share, name[0] == "!"))
            else:
                out.append(node("work" if ms else "wait", name, ranks, ms, 1e6 * ms / self.step_ms))
        return out

    def pipe_program(self, rng: Generator, odd: str) -> list[Bag]:
        """A 1F1B step, with one collective of each stage and often one of all ranks behind it."""
        stages = int(self.stage.max()) + 1
        factors = rng.uniform(0.8, 1.25, stages) if odd == "imbalanced" else 1 + rng.uniform(-0.02, 0.02, stages)
        of, parts = [self.every[self.stage == s] for s in range(stages)], int(rng.integers(stages, 2 * stages + 3))
        unit, posted = self.step_ms / (3 * (parts + stages - 1)), {}
        nodes = [node("work", "data_load", of[0], self.step_ms * 0.005, 1000)]
        pairs = [(s, m) for s in range(stages) for m in range(parts)]
        slots = [(s + m if m < stages - s else s + 2 * m, s, "forward", m) for s, m in pairs]
        for _, s, name, m in sorted(slots + [(2 * stages - 1 - s + 2 * m, s, "backward", m) for s, m in pairs]):
            before, ms = (s - 1, unit) if name == "forward" else (s + 1, 2 * unit)
            if (before, name, m) in posted:
                nodes.append(node("hop", f"{name}_recv", np.array([of[before], of[s]]), unit * self.share / 2, unit * 5e4, m))
                nodes[-1].source = posted[before, name, m]
            if odd == "embedding" and s == 0:
                nodes.append(node("work", f"embedding_{name}", of[s], ms * 0.3, 5000, m))
            nodes.append(node("work", name, of[s], ms * factors[s], 1e5 * unit, m))
            posted[s, name, m] = len(nodes) - 1
            if odd in ("embedding", "ends") and s == stages - 1 and name == "forward":
                nodes.append(node("work", "head_and_loss", of[s], ms * 0.4, 9000, m))
        if len(of[0]) > 1:
            ms, groups = self.step_ms * self.share / 10, {f"dp_{s}": ranks for s, ranks in enumerate(of)}
            nodes.append(self.meeting("all_reduce_gradients", groups, ms, True))
        nodes.append(node("work", "optimizer", self.every, self.step_ms * 0.03, 2000))
        if rng.random() < 0.6:
            nodes.append(self.meeting("all_reduce_norm", {"world": self.every}, self.step_ms * 0.001, True))
        return nodes

    def draw_noise(self, rng: Generator, odd: str) -> dict[str, Any]:
        """What varies in this job and how much, and what the file records."""
        u, chance = rng.uniform, rng.random
        noise = {
            "rank": 0.001 * 40 ** chance(), "red": u(0, 0.9), "op": 0.003 * 16 ** chance(), "comm": u(0.01, 0.15),
            "lengths": rng.choice([u(0, 0.02), u(0.02, 0.1), u(0.1, 0.25)], p=[0.5, 0.3, 0.2]), "habits": u(0, 0.02),
            "stalls": 0.0005 * 20 ** chance() * (chance() < 0.35), "warm": chance() < 0.3 and self.steps >= 10, "growth": 1.0,
            "sizes": chance() < 0.5, "offset_ms": u(0, 50) * (chance() < 0.6), "drift_ppm": u(0, 40), "hosts": chance() < 0.7,
            "relative": chance() < 0.15, "base": rng.choice([0, 1, 1000]), "launch": u(0, 0.005), "uneven": 0.0, "batch": 1.0,
        }  # fmt: skip
        odds: dict[str, dict[str, Any]] = {
            "red": {"rank": u(0.02, 0.05), "red": u(0.6, 0.9)}, "lengths": {"lengths": u(0.1, 0.25)}, "warm": {"warm": True},
            "skew": {"offset_ms": u(20, 50), "drift_ppm": u(20, 40), "relative": False, "hosts": True},
            "tails": {"stalls": u(0.005, 0.02)}, "stalls": {"stalls": u(0.03, 0.1)}, "uneven": {"uneven": u(0.05, 0.2)},
            "habits": {"habits": 0.02}, "batch": {"batch": rng.choice([0.5, 1.25, 1.5, 2.0])}, "curriculum": {"growth": 2.0},
        }  # fmt: skip
        return noise | odds.get(odd, {})

    def play(self, plan: Bag) -> Bag:
        """Begins and ends of all nodes, ms, and the end of every step."""
        free: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(self.ranks))
        begin = [np.zeros((self.steps, *n.ranks.shape)) for n in self.nodes]
        end = [np.zeros(took.shape) for took in plan.took]
        wall, compute, comm, posted = np.zeros(self.steps), free["compute"], free["comm"], {}
        for t, i in ((t, i) for t in range(self.steps) for i, n in enumerate(self.nodes) if n.on is None or n.on[t]):
            one, r = self.nodes[i], self.nodes[i].ranks
            if one.what == "work":
                begin[i][t] = compute[r] + plan.gap[i][t]
                end[i][t] = begin[i][t] + plan.took[i][t]
                posted[i] = compute[r] = end[i][t] + (plan.extra[i][1][t] if i in plan.extra else 0.0)
            elif one.what == "meet":
                begin[i][t] = np.maximum(comm[r], compute[r])
                end[i][t] = begin[i][t].max(axis=1) + plan.took[i][t]
                comm[r] = end[i][t][:, None]
                compute[r] = comm[r] if one.blocking else compute[r]
            elif one.what == "hop":
                out, into = HOPS[one.name]
                begin[i][t] = np.maximum(posted[one.source], free[out][r[0]]), np.maximum(compute[r[1]], free[into][r[1]])
                end[i][t] = begin[i][t].max(axis=0) + plan.took[i][t]
                free[out][r[0]] = free[into][r[1]] = compute[r[1]] = end[i][t]
            else:
                compute[r] = np.maximum(compute[r], comm[r]) if one.what == "wait" else max(compute.max(), comm.max())
            wall[t] = max(compute.max(), comm.max())
        return Bag(begin=begin, end=end, wall=wall)

    def with_faults(self, plan: Bag, faults: list[Bag], amount: float) -> Bag:
        """The plan with faults of this amount."""
        out = Bag(took=[*plan.took], gap=[*plan.gap], extra={**plan.extra}, size=plan.size)
        for f in faults:
            slow, strength = self.slow_ranks if f.ranks else self.slow_links, (amount * f.scale * f.weight)[:, None]
            slow(out, f, strength, np.random.default_rng(f.seed))
        return out

    def slow_links(self, plan: Bag, fault: Bag, strength: np.ndarray, rng: Generator) -> None:
        """Slow the hops of links and the collectives of groups."""
        for i, one in enumerate(self.nodes):
            pairs = list(zip(*one.ranks.tolist(), strict=True)) if one.what == "hop" else one.groups
            hit = np.array([pair in (*fault.links, *fault.groups) for pair in pairs])
            random, small = rng.exponential(size=plan.took[i].shape), self.step_ms * 0.01
            by = {"latency": small, "comm_jitter": small * random}.get(fault.mechanism, plan.took[i])
            plan.took[i] = plan.took[i] + strength * hit * by if hit.any() else plan.took[i]

    def slow_ranks(self, plan: Bag, fault: Bag, strength: np.ndarray, rng: Generator) -> None:
        """Slow what ranks do themselves."""
        slots, kind, ms = self.slots, fault.mechanism, self.step_ms
        usual = [self.nodes[i].name for i in slots[fault.ranks[0]]]
        chosen, new = str(rng.choice(usual)), str(rng.choice(["cast_copy", "nan_check", "dequantize", "layout_copy"]))
        pick, burst = rng.integers(1 << 20, size=self.steps), np.exp(0.5 * rng.standard_normal(self.steps))[:, None] * ms
        pick, bursts = np.full(self.steps, -1) if kind == "checkpoint" else pick, kind in ("gc", "gc_ops", "checkpoint")
        for i, one in enumerate(self.nodes):
            if one.what != "work" or (one.name in HOST_OPS and (kind, one.name) != ("loader", "data_load")):
                continue
            more, took, mine = strength * fault.coefficient[one.ranks], plan.took[i], one.name == chosen
            random, loads = rng.exponential(size=took.shape), one.name == "data_load"
            here = np.stack([slots[r][pick % len(slots[r])] == i for r in one.ranks], axis=1) if bursts else mine
            longer = {"longer": took, "one_class": took * mine, "jitter": took * random, "loader": ms * loads}
            plan.took[i] = took + more * longer.get(kind, 0.0)
            plan.gap[i] = plan.gap[i] + more * {"gaps": took, "gc": here * burst}.get(kind, 0.0)
            name = {"new_ops": new, "more_ops": one.name, "checkpoint": "checkpoint_save", "gc_ops": "gc"}.get(kind)
            if name and np.any(here):
                added = more * (here * burst if bursts else ms / usual.count(chosen))
                plan.extra[i] = name, plan.extra.get(i, ("", 0.0))[1] + added

    def saving(self, hit: Bag, without: Bag, onset: int) -> float:
        """What the wall from onset to the end would have been shorter by with another plan, as a share of it."""
        wall, other = self.play(hit).wall, self.play(without).wall
        return float((wall[-1] - other[-1]) / (wall[-1] - (wall[onset - 1] if onset else 0.0)))

    def search_amount(self, plan: Bag, faults: list[Bag], target: float) -> float:
        """The amount at which the faults together cost the target, by secants of the loss."""
        onset, wanted, before = min(f.onset for f in faults), target / (1 - target), (0.0, 0.0)
        amount = wanted / max(max(f.weight[onset:].mean() for f in faults), 0.01)
        for _ in range(12):
            loss = 1 / (1 - self.saving(self.with_faults(plan, faults, amount), plan, onset)) - 1
            if abs(loss / wanted - 1) < 0.08:
                break
            slope = (loss - before[1]) / (amount - before[0])
            step = amount + (wanted - loss) / slope if slope > 0 and loss > 0.05 * wanted else amount * 3
            before, amount = (amount, loss), float(np.clip(step, amount / 4, amount * 4))
        return amount

    def draw_plan(self, rng: Generator) -> Bag:
        """All durations of the job without a fault, ms: a row a step; ``extra`` are ops added behind a node."""
        n, steps, t = self.noise, self.steps, np.arange(self.steps)
        length = np.exp(n["lengths"] * rng.standard_normal(steps) - n["lengths"] ** 2 / 2)
        length = np.maximum(np.round(length * 16), 4) / 16 if n["sizes"] else length
        batch = np.where(t >= steps * rng.uniform(0.3, 0.6), n["batch"], 1.0) * n["growth"] ** (t * 3 // steps - 2.0)
        recorded, red = batch * (length if n["sizes"] else 1.0), rng.standard_normal((steps, self.ranks))
        for i in range(1, steps):
            red[i] = n["red"] * red[i - 1] + np.sqrt(1 - n["red"] ** 2) * red[i]
        red *= n["rank"] * np.exp(0.3 * rng.standard_normal(self.ranks))
        pace = np.exp(red + n["uneven"] * rng.standard_normal(red.shape)) * (1 + rng.uniform(0, n["habits"], self.ranks))
        pace *= (length * batch * np.where((t < 3) & n["warm"], 1 + rng.uniform(0.3, 3) * 0.4**t, 1.0))[:, None]
        took, gap = [], []
        for one in self.nodes:
            shape = (steps, one.ranks.shape[1] if one.what == "hop" else len(one.ranks))
            own = one.what == "work" and one.name not in HOST_OPS
            scale = pace[:, one.ranks] if own else recorded[:, None] if one.what == "hop" else 1.0
            took.append(one.base_ms * scale * np.exp(n["op" if one.what == "work" else "comm"] * rng.standard_normal(shape)))
            gap.append(n["launch"] * np.mean(one.base_ms) * rng.exponential(size=shape) * own)
        for i, r in np.argwhere(rng.random((steps, self.ranks)) < n["stalls"]).tolist():
            at = int(rng.choice(self.slots[r]))
            gap[at][i, np.searchsorted(self.nodes[at].ranks, r)] += self.step_ms * min(0.03 * (1 + rng.pareto(1.6)), 1.0)
        return Bag(took=took, gap=gap, extra={}, size=recorded)

    def table_of(self, plan: Bag, played: Bag) -> dict[str, np.ndarray]:
        """All ops as columns, in order of step, rank and start; times in ms of the true clock."""
        blocks: list[dict[str, Any]] = []

        def add(ranks: np.ndarray, op: str, lane: str, start: np.ndarray, end: np.ndarray, rest: dict[str, Any]) -> None:
            row = {"peer": -1, "size": -1, "part": -1, "group": "", "op": op, "lane": "host" if op in HOST_OPS else lane}
            row |= {"rank": ranks, "step": on[:, None], "start": start, "end": end} | rest
            kept = np.broadcast_to(end > start, (len(on), len(ranks))) if "size" not in rest else ...
            blocks.append({k: np.broadcast_to(np.asarray(v), (len(on), len(ranks)))[kept].ravel() for k, v in row.items()})

        for i, one in enumerate(self.nodes):
            on, r = np.flatnonzero(one.on) if one.on is not None else np.arange(self.steps), one.ranks
            begin, end = played.begin[i][on], played.end[i][on]
            sized = {"size": np.rint(one.size * plan.size[on, None]).astype(int), "part": one.part}
            if one.what == "work":
                add(r, one.name, "compute", begin, end, sized)
                if i in plan.extra:
                    add(r, plan.extra[i][0], "compute", end, end + plan.extra[i][1][on], {"part": one.part})
            for g, members in enumerate(r if one.what == "meet" else ()):
                add(members, one.name, "comm", begin[:, g], end[:, g, None], {"group": one.groups[g], "size": one.size})
            for side in (0, 1) if one.what == "hop" else ():
                name = one.name if side else one.name.replace("recv", "send")
                add(r[side], name, HOPS[one.name][side], begin[:, side], end, sized | {"peer": r[1 - side]})
        table = {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}
        order = np.lexsort((table["start"], table["rank"], table["step"]))
        table, calls = {key: column[order] for key, column in table.items()}, defaultdict(count)
        members = np.array([table["rank"], table["group"]], object).T
        return table | {"seq": np.array([next(calls[r, g]) if g else -1 for r, g in members])}

    def write(self, plan: Bag, played: Bag, path: Path, slow_model: np.ndarray, rng: Generator) -> Path:
        """The files of a job in its format: with the clocks of its hosts, or in each step from its own begin."""
        table, csv, base = self.table_of(plan, played), path.with_suffix(".csv"), self.noise["base"]
        host, kineto = self.host[table["rank"]], "kineto" in self.layout
        if self.layout == "steps":
            last, began = table["op"] == "barrier", np.concatenate([[0.0], played.wall[:-1]])[table["step"]]
            rows = zip(table["rank"][last], table["step"][last] + base, (table["start"] - began)[last] / 1e3, strict=True)
            csv.write_text("worker,step,step_time_s\n" + "".join(f"{r},{t},{s:.9f}\n" for r, t, s in rows))
            return csv
        offset, drift = rng.uniform(-1, 1, (2, max(self.host) + 1)) * [
            [self.noise["offset_ms"]],
            [self.noise["drift_ppm"] * 1e-6],
        ]
        began = np.minimum.reduceat(table["start"], np.unique(table["step"], return_index=True)[1])[table["step"]]
        for key in ("start", "end"):
            clock = table[key] * (1 + drift[host]) + offset[host] + 1e9
            clock = table[key] - began if self.noise["relative"] and not kineto else clock
            table[key] = np.rint(clock * 1e6).astype(np.int64)
        if kineto:
            return self.write_kineto(table, path, slow_model)
        columns = {"rank": table["rank"], "step": table["step"] + base, "op": table["op"], "start_ns": table["start"],
                   "duration_ns": table["end"] - table["start"], "lane": table["lane"], "group": table["group"]}  # fmt: skip
        for key, name in (("seq", "seq"), ("peer", "peer"), ("size", "bytes"), ("part", "micro_batch")):
            columns[name] = np.where(table[key] < 0, "", table[key].astype(str))
        columns |= {"stage": self.stage[table["rank"]]} if self.layout == "pipe" else {}
        columns |= {"dp_rank": self.dp[table["rank"]]} if self.layout in ("pipe", "tpdp") else {}
        columns |= {"host": np.char.add("node", host.astype(str))} if self.noise["hosts"] else {}
        lines = map(",".join, zip(*(column.astype(str).tolist() for column in columns.values()), strict=True))
        csv.write_text("\n".join([",".join(columns), *lines]) + "\n")
        return csv

    def write_kineto(self, table: dict[str, np.ndarray], path: Path, slow_model: np.ndarray) -> Path:
        """One Kineto trace per rank: steps, launches, kernels, loader and checkpoint annotations of the host."""
        path.mkdir(parents=True, exist_ok=True)
        groups, cells = {g: members.tolist() for g, members in self.groups.items()}, {k: v.tolist() for k, v in table.items()}
        for r in range(self.ranks):
            mine, events = np.flatnonzero(table["rank"] == r), list[tuple[str, str, float, float, int, dict[str, Any]]]()
            now = cells["start"][mine[0]] - 30_000
            for t in range(self.steps):
                begun = busy = now = now + 100
                for i in mine[table["step"][mine] == t].tolist():
                    op, start, end, lane, group = (cells[key][i] for key in ("op", "start", "end", "lane", "group"))
                    if lane == "host":
                        events.append(("user_annotation", op, max(start, now), end, 0, {}))
                        now = end
                        continue
                    late = lane == "compute" and start - max(busy, now) > self.step_ms * 2e3
                    now = max(now + 500, start - 12_000 if late else min(now + 6000, start - 4000))
                    args, stream = {"correlation": len(events) + 1}, 7 if lane == "compute" else 20
                    events.append(("cuda_runtime", "cudaLaunchKernel", now, now + 3000, 0, args))
                    kernel, args = f"sm90_{op}_kernel", args | {"device": r % 8, "stream": stream}
                    if group:
                        kernel = f"ncclDevKernel_{op.title().replace('_', '')}_RING_LL"
                        args |= {"Collective name": op.replace("_", ""), "Process Group Name": group, "Seq": cells["seq"][i],
                                 "dtype": "BFloat16", "In msg nelems": cells["size"][i]}  # fmt: skip
                    events.append(("kernel", kernel, max(start, now + 3500), end, stream, args))
                    now, busy = now + 3000, max(busy, end)
                wait, idle = {"correlation": len(events) + 1}, max(busy, now + 900)
                events.append(("cuda_runtime", "cudaStreamSynchronize", now + 500, idle, 0, wait))
                now = idle + 200
                events.append(("user_annotation", f"ProfilerStep#{t + self.noise['base']}", begun, now, 0, {}))
            config = [{"pg_name": g, "backend_config": "cuda:nccl", "ranks": members} for g, members in groups.items()]
            device = {"id": r % 8, "name": "NVIDIA A100-SXM4-80GB" if slow_model[r] else "NVIDIA H100 80GB HBM3"}
            rows = ((cat, op, at / 1e3, (end - at) / 1e3, int(not on), on or 1, args) for cat, op, at, end, on, args in events)
            document = {"schemaVersion": 1, "host_name": f"node{self.host[r]}", "deviceProperties": [device],
                        "distributedInfo": {"backend": "nccl", "rank": r, "world_size": self.ranks, "pg_config": config},
                        "traceEvents": [{"ph": "X"} | dict(zip(EVENT, row, strict=True)) for row in rows]}  # fmt: skip
            (path / f"rank{r}.json").write_text(json.dumps(document))
        return path


def design(kind: Bag, rng: Generator, shape: str) -> Job:
    """A job that the kind can happen in, small enough for the limit on rows."""
    odd = kind.need.get("noise", "") if kind.shapes else "".join(kind.mechanisms)
    low, high = kind.need.get("steps", (max(MIN_STEPS.get(shape, 6), 6 if odd in ("", "red", "skew", "habits") else 24), 400))
    style, most = str(rng.choice(kind.layouts)), 0
    rows, high = (14_000, min(high, 40)) if "kineto" in style else (60_000, high)
    added = {"logging": "logging .01", "evaluation": "evaluation_forward .8", "checkpoints": "checkpoint_save .03"}.get(odd, "")
    added = f";{added};!all_reduce_metrics .02" if added else ""
    while most < low:
        job, n = Job(kind, style, rng), int(rng.integers(2, 5))
        job.nodes = job.pipe_program(rng, odd) if style == "pipe" else job.flat_program(n, added, job.every)
        enough = int(job.host.max()) + 1 >= kind.need.get("hosts", 1)
        most = int(min(high, rows / sum(one.ranks.size for one in job.nodes))) if enough else 0
    job.steps = round(low * (most / low) ** rng.random())
    job.noise = job.draw_noise(rng, odd)
    t, change = np.arange(job.steps), int(job.steps * rng.uniform(0.3, 0.6))
    if added:
        job.nodes[-2].on = job.nodes[-1].on = t % int(rng.integers(4, 11)) == 3
    if odd == "elastic":
        job.groups = {}
        small, large = (job.flat_program(n, "", job.every[:k], f"world_{k}") for k in (8, 16))
        job.nodes = [*small, node("restart", "", job.every), *large]
        for i, one in enumerate(job.nodes):
            one.on = t < change if i < len(small) else t == change if i == len(small) else t >= change
    own = [(i, set(n.ranks.tolist())) for i, n in enumerate(job.nodes) if n.what == "work" and n.name not in HOST_OPS]
    job.slots = [np.array([i for i, ranks in own if r in ranks]) for r in range(job.ranks)]
    return job


def place_fault(kind: Bag, place: str, job: Job, shape: str, other: Bag | None, rng: Generator) -> Bag:
    """One fault: a coefficient of every rank, or links or groups, and a weight of every step."""
    at, one, order = job.every, int(rng.integers(job.ranks)), rng.permutation(job.ranks)
    one, steps, t = (one + 1) % job.ranks if other and one in other.ranks else one, job.steps, np.arange(job.steps)
    onset, every = int(steps * rng.uniform(0.2, 0.5)), int(rng.integers(3, min(max(steps // 4, 4), 25) + 1))
    span, width = max(int(steps * rng.uniform(0.15, 0.4)), 3), max(int(steps * rng.uniform(0.06, 0.15)), 2)
    hits = (rng.random(steps) < rng.uniform(0.08, 0.35)) | np.isin(t, rng.choice(t[2:], 3, replace=False))
    weights = {"always": t >= 0, "since": t >= onset * 1.3, "span": (t >= onset) & (t < onset + span), "intermittent": hits,
               "ramp": np.maximum(t - onset + 1, 0) / (steps - onset), "periodic": t % every == rng.integers(1, every),
               "blocks": t // width % 3 == rng.integers(0, 3), "single": t == rng.integers(2, steps - 1)}  # fmt: skip
    sets = {"host": job.host, "model": job.host, "stage": job.stage, "replica": job.dp, "rank": at}
    some = {"rank0": at < 1, "all": at >= 0, "five": order < 5, "half": order < job.ranks // 2}
    hit = sets[place] == sets[place][one] if place in sets else some.get(place, at < 0)
    hit = hit * (rng.uniform(0.3, 1, job.ranks) if place == "five" else 1.0)
    scale = 1.0 if other is None else rng.uniform(3, 20) if place == "link" else rng.uniform(0.5, 1)
    fault = Bag(place=place, mechanism=str(rng.choice(kind.mechanisms)), weight=weights[shape] * 1.0, scale=scale, links=[],
                coefficient=hit, groups=[], seed=int(rng.integers(2**31)), name=str(sets.get(place, at)[one]))  # fmt: skip
    if place in ("link", "interface"):
        pairs = sorted({(int(a), int(b)) for n in job.nodes if n.what == "hop" for a, b in n.ranks.T})
        link = pairs[rng.integers(len(pairs))]
        fault.links, fault.name = [p for p in pairs if p == link or (place == "interface" and link[0] in p)], str(link[0])
        fault.groups = [g for g, members in job.groups.items() if link[0] in members and place == "interface" and g != "world"]
    elif not hit.any():
        fault.groups = [str(rng.choice([g for g in job.groups if place == "fabric" or g.startswith(place[:3])]))]
    fault.ranks = sorted(np.flatnonzero(fault.coefficient).tolist(), key=lambda r: -fault.coefficient[r])
    fault.onset = int(np.flatnonzero(fault.weight)[0])
    return fault


def make_case(name: str, seed: int, folder: Path, amount: float | None = None) -> tuple[Path, dict[str, Any]]:
    """Write the files of a case and return their path and the truth; ``amount`` overrides the size of the fault."""
    kind, rng = (SOUND | FAULTY)[name], np.random.default_rng([seed, *name.encode()])
    shape = str(rng.choice(kind.shapes)) if kind.shapes else ""
    job = design(kind, rng, shape)
    job.noise["hosts"] |= kind.place in ("host", "model")
    sound = plan = job.draw_plan(rng)
    model, told = np.zeros(job.ranks, bool), name not in UNTELLABLE
    truth = {"kind": name, "seed": seed, "fault": bool(kind.shapes), "tellable": told, "suspect": not told or job.ranks <= 3,
             "shape": shape, "layout": job.layout, "ranks": job.ranks, "steps": job.steps, "base": int(job.noise["base"]),
             "saving": 0.0, "places": []}  # fmt: skip
    if kind.shapes:
        faults, edges = list[Bag](), (0.012, 0.03, 0.05, 0.15, 0.25 if shape == "single" else 0.6)
        for place in {"two": ("rank", "rank"), "rank_link": ("rank", "link")}.get(kind.place, (kind.place,)):
            faults.append(place_fault(kind, place, job, shape, faults[0] if faults else None, rng))
        low, high = edges[(at := int(np.searchsorted((0.2, 0.42, 0.75), rng.random())))], edges[at + 1]
        target, onset = low * (high / low) ** rng.random(), min(f.onset for f in faults)
        amount = job.search_amount(sound, faults, target) if amount is None else amount
        plan, model = job.with_faults(sound, faults, amount), (faults[0].coefficient > 0) & (kind.place == "model")
        truth |= {"onset": onset, "mechanism": faults[0].mechanism, "saving": job.saving(plan, sound, onset)}
        for f in faults:
            others = job.with_faults(sound, [other for other in faults if other is not f], amount)
            members = sorted({int(r) for g in f.groups for r in job.groups[g]})
            place = {"kind": f.place, "name": f.name, "groups": f.groups, "ranks": f.ranks, "members": members}
            place |= {"links": [f"{a}:{b}" for a, b in f.links], "saving": job.saving(plan, others, f.onset)}
            truth["places"].append(place)
    played = job.play(plan)
    truth["wall_ns"] = np.rint(played.wall * 1e6).astype(int).tolist()
    return job.write(plan, played, folder / f"{name}-{seed}", model, np.random.default_rng([seed, 7])), truth


def fits(place: dict[str, Any], finding: dict[str, Any], truth: dict[str, Any]) -> bool:
    """Whether a finding names exactly this place."""
    ranks, said = set(finding["ranks"]), finding.get("place") or finding.get("set") or {}
    kind, name, wanted = said.get("kind") or said.get("by") or "", str(said.get("name") or ""), set(place["ranks"])
    ends, numbers = [set(link.split(":")) for link in finding["links"]], set(re.findall(r"\d+", name))
    at = set.intersection(*ends) if ends else set()
    if place["kind"] == "link":
        holds = kind == "interface" and bool(numbers & set(place["links"][0].split(":")))
        return holds or (place["links"][0] in finding["links"] and bool(at))
    if place["kind"] == "interface":
        return place["name"] in at or ranks == {int(place["name"])} or (kind == "interface" and place["name"] in numbers)
    if place["kind"] in ("all", "fabric"):
        return kind in ("all_ranks", "tier") or len(ranks) == truth["ranks"] or name in place["groups"]
    if place["groups"]:
        return ranks == set(place["members"]) or name in place["groups"]
    if place["kind"] == "five":
        return place["ranks"][0] in ranks and ranks <= wanted
    return ranks == wanted or (not ranks and kind == place["kind"] and numbers == {place["name"]})


def judge(truth: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What a result makes of a case; before schema 3 its saving is the wall recovered over the wall since its first step."""
    findings, verdict, places = result["findings"], result["verdict"]["class"], truth["places"]
    guess = (result.get("suspects") or [])[:1] if truth["suspect"] and not findings else []
    row = {key: value for key, value in truth.items() if key not in ("wall_ns", "places")}
    row, ends = row | {"verdict": verdict, "accused": bool(findings), "ratios": [], "held": []}, [0, *truth["wall_ns"]]
    together = {r for p in places for r in p["ranks"]} if [len(p["ranks"]) for p in places] == [1, 1] else {-1}
    for f in findings:
        f["fits"] = [p for p in places if fits(p, f, truth)]
        exact = [p["saving"] for p in f["fits"] if p["kind"] != "five" or len(p["ranks"]) == len(f["ranks"])]
        both = set(f["ranks"]) == together
        f["right"], true = bool(f["fits"]) or both, truth["saving"] if both else max(exact, default=0.0)
        if true >= 0.05:
            first, whole = min(max(f["steps"][0] - truth["base"], 0), truth["steps"] - 1), result["job"]["wall_ns"]
            since, share = ends[-1] - ends[first], f.get("recoverable_share") or {"lo": np.nan, "hi": np.nan}
            said = {"value": f["recoverable_wall_ns"] / since, **{key: share[key] * whole / since for key in ("lo", "hi")}}
            said = (f.get("recoverable") or {}).get("since_onset") or said
            value, low, high = (float(np.float64(said[key])) for key in ("value", "lo", "hi"))
            row["ratios"].append(value / true)
            row["held"] += [low <= true <= high] if np.isfinite(low) else []
    first = any(p["kind"] in ("all", "fabric") for p in places) and (verdict == "common" or not (truth["tellable"] or findings))
    first = first or any(f["right"] for f in findings[:1]) or any(fits(p, s, truth) for s in guess for p in places)
    row["outcome"] = "right" if first else "found" if any(f["right"] for f in findings) else "wrong" if findings else "nothing"
    return row


def score(name: str, seed: int) -> dict[str, Any]:
    """One case made, analysed and judged."""
    import taut

    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        path, truth = make_case(name, seed, Path(scratch))
        try:
            row = judge(truth, json.loads(taut.analyze([str(path)]).to_json()))
        except Exception as error:
            row = {"kind": name, "seed": seed, "error": f"{type(error).__name__}: {error}"}
    return row | {"seconds": time.perf_counter() - began}


def rate(hits: list[bool]) -> str:
    """A share with its Wilson 95 % interval."""
    n, k, z = max(len(hits), 1), sum(hits), 1.96**2
    middle, half = (k + z / 2) / (n + z), np.sqrt(z) * np.sqrt(k * (n - k) / n + z / 4) / (n + z)
    return f"{k}/{len(hits)} = {k / n:.1%} [{max(middle - half, 0):.1%}, {min(middle + half, 1):.1%}]"


def report(rows: list[dict[str, Any]]) -> None:
    """Print the summary, the table by kind, and what failed."""
    whole = [r for r in rows if "error" not in r]
    sound, told = [r for r in whole if not r["fault"]], [r for r in whole if r["fault"] and r["tellable"]]
    long, large = [r for r in sound if r["steps"] >= 21], [r for r in told if r["saving"] >= 0.05]
    outcomes = (("right first", "right"), ("found", "right found"), ("wrong first", "found wrong"), ("nothing", "nothing"))
    for (low, high), (name, of) in product(((0.05, 1.0), (0.03, 0.05), (0.01, 0.03)), outcomes):
        print(f"saving {low:.0%} to {high:.0%}: {name}", rate([r["outcome"] in of for r in told if low <= r["saving"] < high]))
    print("untellable, right:", rate([r["outcome"] == "right" for r in whole if r["fault"] and not r["tellable"]]))
    print("healthy or awkward, accused:", rate([r["accused"] for r in sound]))
    print("healthy or awkward, 21 steps or more, called healthy:", rate([r["verdict"] == "healthy" for r in long]))
    print("  of them plain:", rate([r["verdict"] == "healthy" for r in long if r["kind"].startswith("plain")]))
    print("called healthy over a loss of 10 % or more:", rate([r["verdict"] == "healthy" for r in told if r["saving"] >= 0.1]))
    print("predicted ÷ true saving within 20 %:", rate([0.8 <= x <= 1.2 for r in large for x in r["ratios"]]))
    print("intervals that hold the true saving:", rate([x for r in large for x in r["held"]]))
    print(f"{len(rows)} cases, {len(rows) - len(whole)} failed, {np.mean([r['seconds'] for r in rows]):.2f} s a case\n")
    print(f"{'kind':26}    cases    right    found    wrong  nothing  accused  healthy   saving    ratio")
    for kind in (k for k in (SOUND | FAULTY) if any(r["kind"] == k for r in whole)):
        mine = [r for r in whole if r["kind"] == kind]
        seen, ratios = Counter(r["outcome"] for r in mine), [x for r in mine for x in r["ratios"]] or [np.nan]
        counts = [len(mine), *(seen[o] if kind in FAULTY else "" for o in ("right", "found", "wrong", "nothing"))]
        counts += [sum(r["accused"] for r in mine), sum(r["verdict"] == "healthy" for r in mine)]
        medians = np.median([r["saving"] for r in mine]), np.median(ratios)
        print(f"{kind:26}" + "".join(f"{c:>9}" for c in counts) + "".join(f"{m:9.3f}" for m in medians))
    print("\n".join(f"failed: {r['kind']} {r['seed']}: {r['error']}" for r in rows if "error" in r))


def main() -> None:
    """Draw the cases, score them in worker processes, and report."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, usual in (("cases", 200), ("seed", 1), ("jobs", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[*SOUND, *FAULTY])
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    pools = [[k for k in rng.permutation(list(pool)).tolist() if k in asked.kinds] for pool in (FAULTY, SOUND)]
    turns, share = [cycle(pool or other) for pool, other in zip(pools, pools[::-1], strict=True)], 0.45
    names = [next(turns[int((i + 1) * share) > int(i * share)]) for i in range(asked.cases)]
    with ProcessPoolExecutor(asked.jobs) as workers:
        rows = list(workers.map(score, names, count(asked.seed * 1_000_000)))
    report(rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
