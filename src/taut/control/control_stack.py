"""Controllers by layer, and decisions that follow each other on one target: with each other, or against each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.control.action_log import Log
from taut.control.control_indices import directed, followers, forced
from taut.core.array_types import Ints, Mask
from taut.read.actions.loops_config import Loop
from taut.result.brief_types import ControlStack, FollowedDecisions, StackedController


def stack_of_log(log: Log) -> ControlStack:
    """The controllers of a log, and how their decisions follow each other."""
    rows = directed(log)
    mine, then = followers(rows[log.controller[rows] >= 0], log.stream)
    back = then[_against(log, mine, then)]
    known = log.controller[log.controller >= 0]
    controllers = [
        StackedController(
            name=log.word("controller", code),
            layer=_layer(log, code),
            decisions=int((known == code).sum()),
            turned_back=int((log.controller[back] == code).sum()),
        )
        for code in range(len(log.words["controller"]))
    ]
    return ControlStack(controllers=controllers, pairs=_pairs(log, rows))


def stack_of_loops(loops: Sequence[Loop]) -> ControlStack:
    """The loops of a configuration: nothing has been decided yet."""
    return ControlStack(
        controllers=[
            StackedController(name=one.name, layer=one.layer or None, decisions=None, turned_back=None) for one in loops
        ],
        pairs=[],
    )


def _layer(log: Log, controller: int) -> str | None:
    """The layer of most of its actions."""
    layers = log.layer[(log.controller == controller) & (log.layer >= 0)]
    return log.word("layer", int(np.bincount(layers).argmax())) if len(layers) else None


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
    key = first * many + then
    out = []
    for one in np.unique(key[met]).tolist():
        here = met & (key == one)
        bad = int((here & against).sum())
        out.append(FollowedDecisions(first=one // many, then=one % many, coherent=int(here.sum()) - bad, incoherent=bad))
    return out
