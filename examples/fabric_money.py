"""Money questions of a fabric: which one to buy, how it grows, what moving data takes, what faster devices would need.

GPT-175B on A100, on nodes of eight behind leaves of 256 devices, spines of 8,192 and a core. Prices of ports are those of
validation/network.py; a port of 800 Gb/s draws 17 W, so a bit takes 21 pJ an end and crosses 4 ends below a leaf, 8 below
a spine, 12 beyond; inside a node 10 pJ are assumed, and 2 USD for a device and hour.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from taut.project.fabric import fabric_growth as growth
from taut.project.fabric.traffic import traffic
from taut.project.training.forecast import at
from taut.project.training.scenario import Fabric, Tier, parse
from taut.read.scenario_file import load
from taut.result.types import Part

END_PJ = 17 / 800e9 * 1e12


def tier(name: str, devices: int, port_price: float, ends: int) -> Tier:
    """A tier of switches with 64 ports."""
    return Tier(name, devices, 14.5, 12.0, striped=True, port_price=port_price, port_w=8.5, radix=64, pj_per_bit=ends * END_PJ)


def show(rows: Sequence[Part], columns: list[str]) -> None:
    """A table."""
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = (getattr(row, name, None) for name in columns)
        print("| " + " | ".join(f"{c:,.4g}" if isinstance(c, float) else str(c) for c in cells) + " |")
    print()


job, _ = parse(*(load("gpt-175b")[0], "gpt-175b"))
tiers = (
    Tier("node", 8, 233.0, 5.0, pj_per_bit=10.0), tier("leaf", 256, 941.25, 4), tier("spine", 8192, 1182.5, 8),
    tier("core", 262_144, 1182.5, 12),
)  # fmt: skip
job = replace(job, fabric=Fabric("tree", tiers), device=replace(job.device, price_per_hour=2.0))

names = ["fat-tree", "rail-optimised", "rail-only", "dragonfly", "torus"]
money = ["step_ns", "network_price", "device_cost_per_unit", "network_cost_per_unit", "cost_per_unit"]
show(growth.choices(job, names, [1.0, 4.0], [1.0, 16.0]), ["topology", "oversubscription", "latency_times", *money])
sizes = [192, 768, 3072, 12288, 49152]
show(
    growth.growth(job, sizes), ["ranks", "new_tiers", "added_price", "network_price", "units_per_s", "scaling", "cost_per_unit"]
)
show(traffic(job), ["kind", "tier", "bytes_per_step", "joules_per_step"])
gaps = ["ranks", "generation", "exposed_today", "exposed_on_todays_network", "bandwidth_times", "gb_per_s_per_tflops"]
show(list(growth.bandwidth_needed(job, sizes[:4])), gaps)
quick = replace(job, fabric=replace(job.fabric, tiers=(replace(tiers[0], latency_us=0.0), *tiers[1:])))
show(list(growth.bandwidth_needed(quick, sizes[:4])), gaps)
sharded = replace(job, job=replace(job.job, tp=1, pp=1, dp=1536, sharding="zero3", overlap_share=0.8))
show(list(growth.bandwidth_needed(at(sharded, 768), [768, 1536])), gaps)
