"""Checkpoints and failures in closed form: when to save, what a job then takes, what share of its time it keeps.

Failures come without memory, one in ``mtbf_s`` on average. A period is work and then a save; after a failure nothing runs
for ``down_s``, then the last save is read for ``restore_s``, in which the job may fail again. All times are of one job:
the mean time between failures of many nodes is the one node's divided by their number, see ``mtbf_s``.
"""

from __future__ import annotations

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
    # Newton on log(1 - p) + p + ratio = 0; quadratic, so that a few of the 60 steps are used.
    for _ in range(60):
        less = (log1p(-p) + p + ratio) * (1 - p) / p
        if abs(less) <= 1e-15 * p:
            break
        p += less
    return save_s + mtbf_s * p
