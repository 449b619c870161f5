"""Controllers by layer, and decisions that follow each other on one target: with each other, or against each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.control.action_log import Log
from taut.control.control_indices import directed, followers, forced, settings
from taut.core.array_types import Ints, Mask
from taut.read.actions.loops_config import Loop
from taut.result.brief_types import ControlStack, FollowedDecisions, StackedController


def stack_of_log(log: Log) -> ControlStack:
    """The controllers of a log, and how their decisions follow each other."""
    rows = directed(log)
    mine, then = followers(rows[log.controller[rows] >= 0], log.stream)
    back = then[_against(log, mine, then)]
    many = len(log.words["controller"])
    decisions, turned = (np.bincount(log.controller[some], minlength=many) for some in (log.controller >= 0, back))
    layers = _layers(log)
    controllers = [
        StackedController(
            name=log.word("controller", code),
            layer=layers[code],
            decisions=int(decisions[code]),
            turned_back=int(turned[code]),
        )
        for code in range(many)
    ]
    return ControlStack(
        controllers=controllers,
        pairs=_pairs(log, rows),
        targets=sorted(log.words["target"]),
        counted={"compensatory_action_rate": _turned(log, rows), "control_oscillation_frequency": (len(back), len(then))},
    )


def _turned(log: Log, rows: Ints) -> tuple[int, int]:
    """(decisions that turn around the last one on their setting, whoever took it; decisions that follow one at all)."""
    before, after = followers(rows, settings(log))
    return int(_against(log, before, after).sum()), len(after)


def stack_of_loops(loops: Sequence[Loop]) -> ControlStack:
    """The loops of a configuration: nothing has been decided yet."""
    return ControlStack(
        controllers=[
            StackedController(name=one.name, layer=one.layer or None, decisions=None, turned_back=None) for one in loops
        ],
        pairs=[],
    )


def _layers(log: Log) -> list[str | None]:
    """Of each controller the layer of most of its actions."""
    rows = (log.controller >= 0) & (log.layer >= 0)
    many = max(len(log.words["layer"]), 1)
    key = log.controller[rows].astype(np.int64) * many + log.layer[rows]
    seen = np.bincount(key, minlength=len(log.words["controller"]) * many).reshape(-1, many)
    return [log.word("layer", int(row.argmax())) if row.any() else None for row in seen]


def _against(log: Log, before: Ints, after: Ints) -> Mask:
    """Which second ones go the other way although demand did not."""
    against: Mask = (log.direction[before] == -log.direction[after]) & ~forced(log, before, after)
    return against


def _pairs(log: Log, rows: Ints) -> list[FollowedDecisions]:
    before, after = followers(rows[log.controller[rows] >= 0], log.target)
    first, then = log.controller[before].astype(np.int64), log.controller[after].astype(np.int64)
    met = first != then
    against = _against(log, before, after)
    many = len(log.words["controller"])
    keys, place = np.unique((first * many + then)[met], return_inverse=True)
    all_of, bad = np.bincount(place, minlength=len(keys)), np.bincount(place, against[met], minlength=len(keys)).astype(int)
    return [
        FollowedDecisions(first=key // many, then=key % many, coherent=whole - some, incoherent=some)
        for key, whole, some in zip(keys.tolist(), all_of.tolist(), bad.tolist(), strict=True)
    ]
