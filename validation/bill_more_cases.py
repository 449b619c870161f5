"""More cases of `bill_cases.py`: what is a defect of a bill, and what only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from bill_trial import Trial, charge, drilled, hourly, job, kinds, lines, service, shown

A, B, C = "2026-10-05T00:00:00", "2026-10-05T02:00:00", "2026-10-05T04:00:00"


def negative_usage(t: Trial) -> None:
    """Usage below zero without a word is a defect; a refund that says so is none."""
    down = {"PricingQuantity": -1, "ConsumedQuantity": -1}
    rows = hourly("gpu-1", A, 4, 20)
    log = t.jobs(job(1, A, C))
    for words, found in (("gpu8", True), ("manual adjustment", True), ("refund of an outage", False)):
        below = charge("2026-10-05T01:00:00Z", "2026-10-05T02:00:00Z", -20, ChargeDescription=words, **down)
        said = t.ask(log, "--focus", t.bill([*rows, below]))
        named = [one for one in said["defects"] if "negative" in one["kind"]]
        fine = [Decimal(one["money"]) for one in named] == ([-20] if found else [])
        t.holds(words, fine, shown(said))
        t.money(f"effective ({words})", said["accrual"]["effective"], 60)


def counts_without_prices(t: Trial) -> None:
    """One host in five says sixteen and costs twice as much; nobody told how many hosts have."""
    rows = [row for n in range(1, 5) for row in hourly(f"gpu-{n}", A, 4, 20)]
    rows += hourly("gpu-5", A, 4, 40, SkuPriceDetails='{"GpuCount": 16}')
    log = t.jobs(job(1, A, C, 40, "gpu-[1-5]", count=5))
    said = t.ask(log, "--focus", t.bill(rows))
    found = [Decimal(one["money"]) for one in said["defects"] if "count" in one["kind"]]
    t.holds("80 too much", found == [80], shown(said))


def hosts_of_two_sizes(t: Trial) -> None:
    """Hosts of four and of eight, each charged as it is: no defect."""
    rows = [row for n in range(1, 5) for row in hourly(f"gpu-{n}", A, 4, 20)]
    rows += [row for n in range(5, 9) for row in hourly(f"gpu-{n}", A, 4, 11, SkuPriceDetails='{"GpuCount": 4}', SkuId="gpu4")]
    log = t.jobs(job(1, A, C, 32, "gpu-[1-4]", count=4), job(2, A, C, 16, "gpu-[5-8]", count=4))
    said = t.ask(log, "--focus", t.bill(rows))
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said))
    t.money("job 2", drilled(said, "job", "2"), 176)


def half_filled_host(t: Trial) -> None:
    """A host of which never more than two of eight were held: idle, no wrong count."""
    rows = [row for n in range(1, 5) for row in hourly(f"gpu-{n}", A, 4, 20)]
    log = t.jobs(job(1, A, C, 24, "gpu-[1-3]", count=3), job(2, A, C, 2, "gpu-4"))
    said = t.ask(log, "--focus", t.bill(rows))
    t.holds("no defect", kinds(said) == "none", kinds(said))
    t.money("job 2", drilled(said, "job", "2"), 20)
    t.money("idle", lines(said, item="idle accelerators"), 60)


def back_in_time(t: Trial) -> None:
    """A bill seven hours behind, with jobs and machines that come and go."""
    log, rows = [], []
    for k in range(12):
        day, hour = 2 + 2 * k, (5 * k) % 11 + 8
        log.append(job(k, f"2026-10-{day:02}T{hour:02}:00:00", f"2026-10-{day:02}T{hour + 3:02}:00:00"))
        rows += hourly("gpu-1", f"2026-10-{day:02}T{hour - 7:02}:00:00", 3, 20)
    said = t.ask(t.jobs(*log), "--focus", t.bill(rows))
    zone = [one for one in said["defects"] if "zone" in one["kind"]]
    t.holds("seven hours", zone and "7 h" in zone[0]["because"], shown(said))
    t.money("kept", lines(said, fate="kept"), 720)
    t.holds("nothing else", len(said["defects"]) == 1, kinds(said))


def split_commitment(t: Trial) -> None:
    """An hour of which the plan covers a half, and two plans that stand side by side: no overlap, no duplicate."""
    plan = {"CommitmentDiscountId": "p1", "CommitmentDiscountStatus": "Used", "PricingCategory": "Committed", "BilledCost": 0,
            "SkuPriceId": "gpu8.plan", "PricingQuantity": "0.25", "ConsumedQuantity": "0.25"}  # fmt: skip
    rows = []
    for row in hourly("gpu-1", A, 2, 20):
        rows += [row | plan | {"EffectiveCost": 3}, row | plan | {"EffectiveCost": 3, "CommitmentDiscountId": "p2"}]
        rows.append(row | {"EffectiveCost": 10, "BilledCost": 10, "PricingQuantity": "0.5", "ConsumedQuantity": "0.5"})
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 32)
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said))


def late_correction(t: Trial) -> None:
    """A correction of this month's own hours, and one of the year before."""
    rows = hourly("gpu-1", A, 2, 20)
    old = charge("2025-03-05T01:00:00Z", "2025-03-05T02:00:00Z", "-9.99", ChargeClass="Correction")
    own = charge("2026-10-05T01:00:00Z", "2026-10-05T02:00:00Z", "-5.00", ChargeClass="Correction", PricingQuantity=None)
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill([*rows, old, own]))
    t.money("corrections", lines(said, item="correction"), "-14.99")
    t.money("kept", lines(said, fate="kept"), 40)
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said))


def teams_of_tags(t: Trial) -> None:
    """Storage that is tagged with a team is shown to that team."""
    disk = service("Storage", 8, Tags='{"team": "vision"}', ResourceId="vol-1", ResourceName="data")
    log = t.jobs(job(1, A, B, account="vision"))
    said = t.ask(log, "--focus", t.bill([*hourly("gpu-1", A, 2, 20), disk]))
    t.money("vision", drilled(said, "team", "vision"), 48)


MORE_CASES: tuple[Callable[[Trial], None], ...] = (
    negative_usage, counts_without_prices, hosts_of_two_sizes, half_filled_host, back_in_time, split_commitment,
    late_correction, teams_of_tags,
)  # fmt: skip
