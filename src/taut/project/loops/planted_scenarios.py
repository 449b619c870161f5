"""Small scenarios of which the truth is known: one relation is planted in each, and what removes it is known too.

They are the ground truth for ``taut.control``: a simulated log of one must show its relation, one of ``CALM`` none.
"""

from __future__ import annotations

from taut.project.loops.scenario import Autoscaler, Client, Demand, Loops, Pool, Scenario, Stall, Trainer

CALM = Scenario(
    "calm",
    Loops(horizon_s=600),
    Demand(per_s=2, deadline_s=30),
    Pool(service_s=1, replicas=6, cancels=True),
    (Client("sdk", 30, 2, 0.5),),
)
"""Twice the capacity that is asked for, and nobody in anybody's way."""

PLANTED: dict[str, Scenario] = {
    "conflict": Scenario(
        "two owners of one knob", Loops(horizon_s=1800), Demand(per_s=2), Pool(service_s=2, replicas=8, most=16, start_s=5),
        autoscaler=(
            Autoscaler("scaler", "concurrency", 0.7, period_s=5, look_back_s=10, only="up"),
            Autoscaler("saver", "utilisation", 0.9, period_s=45, look_back_s=45, only="down"),
        ),
    ),
    "oscillation": Scenario(
        "an autoscaler that does not see what it did", Loops(horizon_s=3600), Demand(per_s=2, deadline_s=8),
        Pool(service_s=2, spread=0.3, replicas=6, most=24, start_s=60, cancels=True), (Client("sdk", 8, 0),),
        (Autoscaler("scaler", "latency", 0.6, period_s=15, look_back_s=15),),
    ),
    "amplification": Scenario(
        "layers that retry each other's retries", Loops(horizon_s=300), Demand(per_s=5),
        Pool(service_s=0.2, replicas=8, error_share=0.6), (Client("gateway", 60, 3), Client("sdk", 10, 2)),
    ),
    "metastability": Scenario(
        "retries that outlive a stall", Loops(horizon_s=60), Demand(per_s=30), Pool(service_s=0.02),
        (Client("caller", 0.5, 3),), stall=(Stall(20, 4),),
    ),
    "redundant work": Scenario(
        "calls that come to nothing", Loops(horizon_s=300), Demand(per_s=5), Pool(service_s=0.2, replicas=4, error_share=0.2),
        (Client("sdk", 10, 2),),
    ),
    "starvation": Scenario(
        "a job that always makes way", Loops(horizon_s=1800, accelerators=20),
        Demand(per_s=1, shape="square", peak_per_s=6, period_s=120), Pool(service_s=2, replicas=6, least=4, most=18, start_s=5),
        autoscaler=(Autoscaler("scaler", "concurrency", 0.8, down_cooldown_s=15),), trainer=Trainer(8, restore_s=5),
    ),
    "timeout mismatch": Scenario(
        "a deadline shorter than the attempts it covers", Loops(horizon_s=300), Demand(per_s=3, deadline_s=4),
        Pool(service_s=1, replicas=4, cancels=True), (Client("sdk", 3, 3, 0.5),),
    ),
}  # fmt: skip
"""Kind of relation → the scenario that has it."""
