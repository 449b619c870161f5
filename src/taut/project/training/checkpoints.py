"""Checkpoints and failures in closed form: when to save, what a job then takes, what share of its time it keeps.

Failures come without memory, one in ``mtbf_s`` on average. A period is work and then a save; after a failure nothing runs
for ``down_s``, then the last save is read for ``restore_s``, in which the job may fail again. All times are of one job:
the mean time between failures of many nodes is the one node's divided by their number, see ``mtbf_s``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, inf, isinf, log1p, sqrt

NODE_DAYS = 1000
DAY_S = 86400.0


def mtbf_s(per_1000_node_days: float, nodes: float) -> float:
    """Mean time between failures of a job on so many nodes.

    That it falls as one over the nodes is a law of independent, equal nodes, and is not always seen: at 6.50 failures per
    1000 node-days jobs of 1,024 devices (128 nodes) should run 28.8 h between failures, and 7.9 h were measured. A rate is
    good near the scale and on the jobs it was measured at; nothing here is fitted to hide that.
    """
    rate = per_1000_node_days * nodes
    return NODE_DAYS * DAY_S / rate if rate else inf


def expected_s(
    work_s: float, period_s: float, save_s: float, mtbf_s: float, down_s: float = 0.0, restore_s: float = 0.0
) -> float:
    """Expected time of a job that saves once every period, the save included; exact where the periods come out even."""
    if isinf(mtbf_s):
        return work_s * period_s / (period_s - save_s)
    # Daly 2006: (mtbf + down) · exp(restore / mtbf) · (exp(period / mtbf) - 1) for each period.
    each = (mtbf_s + down_s) * exp(restore_s / mtbf_s) * expm1(period_s / mtbf_s)
    return each * work_s / (period_s - save_s)


def none_free(lines: int, offered: float) -> float:
    """Erlang's loss formula: the share of the time in which all lines are taken.

    ``offered`` is how many would be taken on average if there were no end of them.
    """
    if offered <= 0:
        return 0.0 if lines else 1.0
    # One over it grows by a factor and by one with each line.
    over = 1.0
    for k in range(1, lines + 1):
        over = 1 + over * k / offered
    return 1 / over


def too_few(spares: int, offered: Sequence[tuple[int, float]]) -> float:
    """Share of the time in which more nodes are broken than there are spares, and nothing more breaks until one is back.

    ``offered`` is how many nodes break together, and how many such breaks would last at once on average. Erlang's formula where
    nodes break one by one; else the recursion of Kaufman and Roberts, which is exact without spares, too.
    """
    if all(nodes == 1 for nodes, _ in offered):
        return none_free(spares + 1, sum(calls for _, calls in offered))
    # Weight of each number of broken nodes; those above the spares are reached from below only.
    chance = [1.0]
    for j in range(1, spares + max(nodes for nodes, _ in offered) + 1):
        came = sum(calls * nodes * chance[j - nodes] for nodes, calls in offered if 0 <= j - nodes <= spares)
        chance.append(came / j)
        if chance[-1] > MOST:
            chance = [one / MOST for one in chance]
    return sum(chance[spares + 1 :]) / sum(chance)


# Weights are scaled down before they leave the range of numbers.
MOST = 1e200


def best_s(save_s: float, mtbf_s: float) -> float:
    """The period with the least expected time, save included; what a restart costs does not change it.

    It is ``save + mtbf · p`` with ``log(1 - p) + p = -save / mtbf``, the root that Lambert's W gives; Newton's steps come
    down to it from above and keep the digits that W loses where saves are cheap.
    """
    if save_s == 0 or isinf(mtbf_s):
        return inf if save_s else 0.0
    ratio = save_s / mtbf_s
    if ratio > 30:
        return save_s + mtbf_s
    p = min(sqrt(2 * ratio), 1 - exp(-1 - ratio))
    # Newton on log(1 - p) + p + ratio = 0; quadratic, so that after a step this small none is left to take.
    for _ in range(60):
        less = (log1p(-p) + p + ratio) * (1 - p) / p
        p += less
        if abs(less) <= 1e-9 * p:
            break
    return save_s + mtbf_s * p
