"""What a network is built of and costs, at eleven sizes: a public cost sheet of H100 clusters, and what taut counts.

    python validation/network.py

The sheet (https://docs.google.com/spreadsheets/d/1Ft3RbeZ-w43kYSiLfYc1vxO41mK5lmJpcPC9GOYHAWc, prices of August 2024): nodes
of 8 with a 400 Gb/s port for each device, switches of 64 ports for 36,000 USD, nodes for 310,000 USD with their adapters,
facility and operation 50,000 USD a node. It is an estimate by its author, not the invoice of a cluster. Put in, as its
author says (https://substack.tech-talk-cto.com/p/h100-freakonomics-the-economical): one layer of switches up to 64 nodes, two
up to 2,048, three beyond, which is what eight rails have that are not joined. Calibrated: connectors and cables cost what
the rows of 512 and 1,024 devices imply, 1,320 USD for one that leaves a node and 1,240 USD between switches, so the shares
of these two rows say nothing. Switches, and the shares of all other rows, are counted. Shares are
taken with the sheet's own rest (its rows of 4,096 and 8,192 devices have nodes for 300,000 USD). Optics: 14 to 20 W for a
port of 800 Gb/s, beside a device with its share of a node of 8.4 kW; the power of switches and adapters is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from taut.project.fabric.equipment import parts
from taut.project.training.scenario import Fabric, Tier

SHEET = {
    512: (8, 23_040_000, 963_840), 1024: (48, 46_080_000, 4_349_440), 2048: (96, 92_160_000, 8_698_880),
    4096: (192, 179_200_000, 17_397_760), 8192: (384, 358_400_000, 34_795_520), 16384: (768, 737_280_000, 69_591_040),
    32768: (2560, 1_474_560_000, 216_678_400), 65536: (5120, 2_949_120_000, 433_356_800),
    131072: (10240, 5_898_240_000, 866_713_600), 262144: (20480, 11_796_480_000, 1_733_427_200),
    524288: (40960, 23_592_960_000, 3_466_854_400),
}  # fmt: skip
"""Devices: switches, USD without the network, USD of switches, connectors and cables."""
PORT, LEAVING, BETWEEN = 36_000 / 64, 1320.0, 1240.0
CALIBRATED = (512, 1024)
"""Rows that the prices of cables were taken from."""
OPTICS_W = (14.0, 20.0)
"""Of an 800 Gb/s port: two ends of 400 Gb/s cables."""
DEVICE_W = 8400.0 / 8
"""A device with its share of a node of 8.4 kW, as seen under load."""


def fabric(devices: int) -> Fabric:
    """Eight rails of switches with 64 ports; the price of a cable's end is half of the cable and of the switch ports on it."""
    leaf = {"port_price": (LEAVING + PORT) / 2, "radix": 64}
    above = {"port_price": (BETWEEN + 2 * PORT) / 2, "radix": 64}
    sizes = (8 * 64,) if devices <= 512 else (8 * 32, 8 * 32 * 64, 8 * 32 * 64 * 64)
    tiers = [Tier(f"tier {k}", size, 50.0, **(above if k > 1 else leaf)) for k, size in enumerate(sizes, 1)]  # type: ignore[arg-type]
    return Fabric("rails", (Tier("node", 8, 450.0), *tiers), "rail-only")


def rows() -> Iterator[tuple[int, int, int, float, float, float]]:
    """(devices, switches of the sheet, ours, network's share of the cost in the sheet, ours, optics' ports a device)."""
    for devices, (switches, rest, network) in SHEET.items():
        built = parts(fabric(devices), devices)[1:]
        price = sum(part.price or 0.0 for part in built)
        counted = sum(part.switches or 0 for part in built)
        ends = sum(part.ports for part in built) / devices
        yield devices, switches, counted, network / (network + rest), price / (price + rest), ends


def main() -> None:
    """Print the table."""
    print("| devices | switches: sheet | ours | share of cost: sheet | ours | cable ends a device | optics' share of power |")
    print("|---|---|---|---|---|---|---|")
    for devices, theirs, ours, share, counted, ends in rows():
        low, high = (100 * ends * watts / 2 / (ends * watts / 2 + DEVICE_W) for watts in OPTICS_W)
        costs = f"{100 * share:.2f} % | {100 * counted:.2f} %{' (calibrated)' if devices in CALIBRATED else ''}"
        print(f"| {devices:,} | {theirs:,} | {ours:,} | {costs} | {ends:.0f} | {low:.1f}–{high:.1f} % |")


if __name__ == "__main__":
    main()
