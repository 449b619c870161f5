"""Cases of `bill_cases.py` about prices, promises and energy, by the keys that docs/bill-prices.md lists."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path

from bill_trial import NS, Refused, Said, Trial, drilled, hourly, job, kinds, lines, money
from month_jobs import at

A, B, C = "2026-10-05T00:00:00", "2026-10-05T02:00:00", "2026-10-05T04:00:00"
KWH = 3.6e6
POWER = "[power]\nload_w = 500\nstall_w = 300\nidle_w = 100\n"


def priced(t: Trial, text: str, *rows: str, more: tuple[object, ...] = ()) -> Said:
    return t.ask(t.jobs(*(rows or (job(1, A, B),))), "--prices", t.file("prices.toml", text), *more)


def joules(said: Said, **like: object) -> float:
    return sum(line["joules"] or 0 for line in said["lines"] if all(line[key] == value for key, value in like.items()))


def rates_by_host(t: Trial) -> None:
    """The first rate that fits, then the common one."""
    text = (
        'currency = "EUR"\ngpu_hour = "2.50"\n[[rate]]\nkind = "spot"\ngpu_hour = 0.95\nhosts = "spot-*"\n'
        '[[rate]]\nkind = "list"\ngpu_hour = "9"\nhosts = "*-1"\n'
    )
    said = priced(t, text, job(1, A, B, nodes="spot-1"), job(2, A, B, nodes="gpu-1"), job(3, A, B, nodes="gpu-2"))
    for number, true in ((1, "15.2"), (2, 144), (3, 40)):
        t.money(f"job {number}", drilled(said, "job", str(number)), true)


def rate_changes(t: Trial) -> None:
    """A price that ends in the middle of a job."""
    text = (
        'currency = "EUR"\ngpu_hour = "1"\n[[rate]]\nkind = "list"\ngpu_hour = "4"\nuntil = 2026-10-05T00:30:00Z\n'
        '[[rate]]\nkind = "list"\ngpu_hour = "2"\nfrom = 2026-10-05T01:30:00Z\n'
    )
    said = priced(t, text)
    t.money("half an hour at 4, an hour at 1, half at 2", lines(said, fate="kept"), 32)


def owned(t: Trial) -> None:
    """Depreciation, space and people, per hour of 8760 a year."""
    text = (
        'currency = "EUR"\n[[rate]]\nkind = "owned"\nhosts = "*"\n[owned]\npurchase_price = "38000"\nyears = 5\n'
        'residual_value = "3000"\nspace_per_year = "900"\npeople_per_year = "1200"\n'
    )
    said = priced(t, text)
    t.money("kept", lines(said, fate="kept"), Decimal(16 * 9100) / 8760)


def committed_unused(t: Trial) -> None:
    """Sixteen accelerators committed for the day, sixteen hours of them used."""
    text = 'currency = "EUR"\n[[rate]]\nkind = "committed"\ngpu_hour = "1.00"\naccelerators = 16\nhosts = "gpu-*"\n'
    said = priced(t, text, more=("--period", "2026-10-05"))
    t.money("kept", lines(said, fate="kept"), 16)
    t.money("unused commitment", lines(said, item="unused commitment"), 368)


def decimal_money(t: Trial) -> None:
    """A tenth is a tenth, as text or as number."""
    said = priced(t, 'currency = "EUR"\ngpu_hour = 0.1\n', job(1, A, "2026-10-05T00:00:03", 1))
    t.money("three seconds", lines(said, fate="kept"), Decimal("0.1") * 3 / 3600, "5e-10")
    said = priced(t, 'currency = "EUR"\ngpu_hour = "0.1"\n', *(job(k, A, "2026-10-05T01:00:00", 1) for k in range(10)))
    t.holds("ten hours are one euro", lines(said, fate="kept") == 1, lines(said, fate="kept"))


def electricity(t: Trial) -> None:
    """Power of states where nobody measured: 16 accelerator hours at 500 W are 8 kWh."""
    text = f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[electricity]\nper_kwh = "0.25"\nin_rate = false\n'
    said = priced(t, text)
    t.near("joules", joules(said, item="electricity"), 8 * KWH)
    t.money("electricity", lines(said, item="electricity"), 2)
    t.money("kept, without it", lines(said, item="accelerator time"), 32)
    t.holds("modelled", "state" in (said["energy"]["source"] or ""), said["energy"])
    said = priced(t, text.replace("false", "true"))
    t.holds("inside the rate", lines(said, item="electricity") == 0 and joules(said, item="electricity") > 0, said["lines"])


def wasted_energy(t: Trial) -> None:
    """Electricity of an attempt that was lost is energy wasted."""
    text = f'currency = "EUR"\n{POWER}[electricity]\nper_kwh = "1"\nin_rate = false\n'
    said = priced(t, text, job(1, A, B, state="NODE_FAIL"), job(1, B, C))
    by = {row["name"]: row for row in said["categories"]}
    t.holds(
        "wasted",
        by.get("energy wasted", {}).get("joules") and Decimal(by["energy wasted"]["money"] or 0) > 0,
        said["categories"],
    )
    t.holds("stall energy", (said["energy"]["stall_joules"] or 0) > 0, said["energy"])
    t.holds("useful 8 kWh", abs((by.get("useful work", {}).get("joules") or 0) - 8 * KWH) < 1, by.get("useful work"))


def tariff(t: Trial) -> None:
    """Two hours at different prices."""
    t.file("tariff.csv", "time,per_kwh\n2026-10-05T00:00:00Z,0.10\n2026-10-05T01:00:00Z,0.30\n2026-10-05T02:00:00Z,9\n")
    text = f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[electricity]\ntariff = "tariff.csv"\nin_rate = false\n'
    said = priced(t, text)
    t.money("4 kWh at 0.10 and 4 at 0.30", lines(said, item="electricity"), "1.60")


def tariff_with_a_hole(t: Trial) -> None:
    """An hour that the tariff leaves out is not free: null and named, or at per_kwh."""
    t.file("tariff.csv", "time,per_kwh\n2026-10-05T00:00:00Z,0.10\n2026-10-05T01:00:00Z,0.10\n2026-10-05T02:00:00Z,\n"
           "2026-10-05T03:00:00Z,0.30\n")  # fmt: skip
    text = f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[electricity]\ntariff = "tariff.csv"\nin_rate = false\n'
    said = priced(t, text, job(1, A, C))
    lost = [one for one in (*said["missing"], *said["notes"]) if "tariff" in one and "02:00" in one]
    t.holds("named", lost, said["missing"])
    t.holds("not as if it were free", lines(said, item="electricity") == 0 or lost, lines(said, item="electricity"))
    said = priced(t, text + 'per_kwh = "1"\n', job(1, A, C))
    t.money("4 kWh at 0.1, 0.1, 1, 0.3", lines(said, item="electricity"), "6.00")


def tariff_clocks_back(t: Trial) -> None:
    """Local hours of 25 October: two rows for 02:00, the second is the later one."""
    hours = ("00", "01", "02", "02", "03", "04")
    values = ("1", "1", "2", "4", "8", "8")
    rows = "".join(f"2026-10-25T{hour}:00:00,{value}\n" for hour, value in zip(hours, values, strict=True))
    t.file("tariff.csv", "time,per_kwh\n" + rows)
    electricity = '[electricity]\ntariff = "tariff.csv"\nzone = "Europe/Berlin"\nin_rate = false\n'
    text = f'currency = "EUR"\ngpu_hour = "2"\n{POWER}{electricity}'
    # 00:00 to 03:00 UTC are the hours 02 (of summer), 02 (of winter) and 03 of Berlin's clocks.
    said = priced(t, text, job(1, "2026-10-25T00:00:00", "2026-10-25T03:00:00"))
    t.money("4 kWh at 2, 4 and 8", lines(said, item="electricity"), 56)


def cooling_curve(t: Trial) -> None:
    """PUE by the temperature of the hour: 27.5 °C lies between 1.15 and 1.40."""
    t.file("outside.csv", "time,temperature_c\n2026-10-05T00:00:00Z,27.5\n2026-10-05T01:00:00Z,-20\n2026-10-05T02:00:00Z,0\n")
    text = (
        f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[cooling]\ncurve = [[-5, 1.10], [20, 1.15], [35, 1.40]]\n'
        'temperature = "outside.csv"\n[electricity]\nper_kwh = "1"\nin_rate = false\n'
    )
    said = priced(t, text)
    t.near("joules", joules(said, item="cooling"), 4 * KWH * 0.275 + 4 * KWH * 0.10)
    t.money("money", lines(said, item="cooling"), "1.50")


def cooling_number(t: Trial) -> None:
    """PUE as a number."""
    said = priced(t, f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[cooling]\npue = 1.25\n')
    t.near("joules", joules(said, item="cooling"), 2 * KWH)
    said = priced(t, f'currency = "EUR"\ngpu_hour = "2"\n{POWER}')
    named = any(word in str(said["missing"]).lower() for word in ("pue", "cooling"))
    t.holds("without PUE none, and named", joules(said, item="cooling") == 0 and named, said["missing"])


def carbon_by_hour(t: Trial) -> None:
    """Grams by the hour."""
    t.file("carbon.csv", "time,g_per_kwh\n2026-10-05T00:00:00Z,100\n2026-10-05T01:00:00Z,500\n2026-10-05T02:00:00Z,0\n")
    said = priced(t, f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[carbon]\nintensity = "carbon.csv"\n')
    t.near("kg", sum(line["kg_co2e"] or 0 for line in said["lines"] if line["item"] == "electricity"), 2.4)


def network_energy(t: Trial) -> None:
    """A hundred ports of 10 W for two hours."""
    said = priced(t, f'currency = "EUR"\ngpu_hour = "2"\n{POWER}[network]\nports = 100\nport_w = 10\n')
    t.near("joules", joules(said, item="network energy"), 2 * KWH)
    t.near("energy", said["energy"]["network_joules"], 2 * KWH)


def unknown_keys(t: Trial) -> None:
    """A key that is none is refused with its line and what was meant."""
    log = t.jobs(job(1, A, B))
    for text, meant in (('currency = "EUR"\ngpu_hours = "2"\n', "gpu_hour"), ('[electricity]\nper_kw = "2"\n', "per_kwh"),
                        ('[hosts]\nacelerators = 8\n', "accelerators")):  # fmt: skip
        t.refused(meant, log, "--prices", t.file("prices.toml", text), telling=(meant,))
    for name, text in (("negative", 'currency = "EUR"\ngpu_hour = "-2"\n'),
                       ("currency", 'currency = "euros"\ngpu_hour = "2"\n'),
                       ("nan", 'currency = "EUR"\ngpu_hour = nan\n'), ("torn", 'currency = "EUR\n')):  # fmt: skip
        t.refused(name, log, "--prices", t.file("prices.toml", text))


def gpu_hour_beside_prices(t: Trial) -> None:
    """Both: one of them counts and it is said, or both are refused; another currency is never mixed."""
    log, toml = t.jobs(job(1, A, B)), t.file("prices.toml", 'currency = "EUR"\ngpu_hour = "2"\n')
    code, out, told = t.call(log, "--prices", toml, "--gpu-hour", "3EUR", "--json", "-q")
    t.holds("said", (code in (2, 4) and "gpu-hour" in told) or '"48' in out or '"32' in out, f"exit {code}: {told}")
    code, out, told = t.call(log, "--prices", toml, "--gpu-hour", "3USD", "--json", "-q")
    t.holds("two currencies refused", code in (2, 4) and "No such command" not in told, f"exit {code}: {told} {out[:100]}")


def promises(t: Trial) -> None:
    """A job that ended two hours after it was submitted, promised within one: 500 and 40 an hour."""
    sla = '[[sla]]\njobs = "prod-*"\npromise_hours = 1\npenalty = "500"\npenalty_per_hour = "40"\n'
    text = f'currency = "EUR"\ngpu_hour = "1"\n{sla}'
    said = priced(t, text, job(1, A, B, name="prod-a"), job(2, A, B, name="test-b", nodes="gpu-2"))
    t.money("penalty", lines(said, item="SLA penalty"), 540)
    t.holds("direct", all(line["kind"] == "direct" for line in said["lines"] if line["item"] == "SLA penalty"), said["lines"])
    t.money("no part of accelerator time", lines(said, item="accelerator time"), 32)


def promise_kept(t: Trial) -> None:
    """Ended within the promise: no penalty, and none is owed for a job that still waits."""
    text = 'currency = "EUR"\ngpu_hour = "1"\n[[sla]]\njobs = "*"\npromise_hours = 2\npenalty = "500"\n'
    t.money("penalty", lines(priced(t, text), item="SLA penalty"), 0)


def triage(t: Trial) -> None:
    """60 hours at 95."""
    said = priced(t, 'currency = "EUR"\ngpu_hour = "1"\n[triage]\nhours = 60\nper_hour = "95"\n')
    t.money("triage", lines(said, item="triage hours"), 5700)
    t.money("category", lines(said, category="operational complexity"), 5700)


def delay(t: Trial) -> None:
    """Twelve hours in the queue at 2,000 a day."""
    row = job(1, "2026-10-05T12:00:00", "2026-10-05T14:00:00", submit=A)
    said = priced(t, 'currency = "EUR"\ngpu_hour = "1"\n[delay]\nper_day = "2000"\n', row)
    t.money("delay", lines(said, item="delay"), 1000)
    t.money("accelerator time", lines(said, item="accelerator time"), 16)


def budget(t: Trial) -> None:
    """A month that is over, and one that is open."""
    text = 'currency = "EUR"\n[budget]\namount = "10000"\nper = "month"\n'
    toml = t.file("prices.toml", text)
    rows = hourly("gpu-1", "2026-10-01T00:00:00", 31 * 24, 10)
    log = t.jobs(job(1, "2026-10-01T00:00:00", "2026-11-01T00:00:00"))
    said = t.ask(log, "--prices", toml, "--focus", t.bill(rows))["budget"]
    for key, true in (("budget", 10000), ("actual", 7440), ("forecast", 7440), ("left", 2560)):
        t.money(f"over: {key}", said[key], true)
    log = t.jobs(job(1, "2026-10-01T00:00:00", "2026-10-11T00:00:00"))
    said = t.ask(log, "--prices", toml, "--focus", t.bill(rows[:240]))["budget"]
    for key, true in (("actual", 2400), ("forecast", 7440), ("left", 2560)):
        t.money(f"open: {key}", said[key], true, "0.02")


def teams(t: Trial) -> None:
    """Jobs by a pattern of their names; the first that fits counts."""
    text = 'currency = "EUR"\ngpu_hour = "1"\n[teams]\n"llm-*" = "language"\n"*" = "others"\n'
    said = priced(t, text, job(1, A, B, name="llm-7b"), job(2, A, B, name="x", nodes="gpu-2"))
    t.money("language", drilled(said, "team", "language"), 16)
    t.money("others", drilled(said, "team", "others"), 16)


def mapped_hosts(t: Trial) -> None:
    """Resources that only a mapping tells, in the file and beside it; hosts of four accelerators."""
    t.file("hosts.csv", "resource,host,accelerators,model\ni-0b,gpu-2,4,H100\n")
    text = 'currency = "EUR"\n[hosts]\naccelerators = 8\nfile = "hosts.csv"\n[hosts.resources]\n"i-0a" = "gpu-1"\n'
    rows = [dict(row, SkuPriceDetails=None) for row in hourly("i-0a", A, 2, 20) + hourly("i-0b", A, 2, 10)]
    log = t.jobs(job(1, A, B, 4, "gpu-1"), job(2, A, B, 2, "gpu-2"))
    said = t.ask(log, "--prices", t.file("prices.toml", text), "--focus", t.bill(rows))
    t.money("four of eight", drilled(said, "job", "1"), 20)
    t.money("two of four", drilled(said, "job", "2"), 10)
    t.holds("no defect", kinds(said) == "none" and not said["unmatched"], kinds(said))


def charged_less_than_used(t: Trial) -> None:
    """What was used and not charged is accrued at the given rate."""
    text = 'currency = "EUR"\ngpu_hour = "2"\n'
    log = t.jobs(job(1, A, B, 16, "gpu-[1-2]", count=2))
    said = t.ask(log, "--prices", t.file("prices.toml", text), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("residual", said["accrual"]["residual"], -32)
    t.money("ledger", said["accrual"]["ledger"], 72)


# ------------------------------------------------------------------------------------------------------- measured energy

T0 = at("2026-10-05T00:00:00")
STEPS = 60


def run_folder(t: Trial, name: str, *, texts: dict[str, str]) -> Path:
    """Two ranks, 60 steps of a second each, and metrics beside them, analysed."""
    rows = [f"{rank},{step},1.0,{(T0 + step) * NS}" for step in range(STEPS) for rank in (0, 1)]
    t.file(f"{name}/in/steps.csv", "rank,step,step_time_s,start_ns\n" + "\n".join(rows) + "\n")
    for file, text in texts.items():
        t.file(f"{name}/in/{file}", text)
    run = t.folder / name / "run"
    command = [*t.taut, "analyze", str(t.folder / name / "in"), "-o", str(run), "-q"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if told.returncode:
        raise Refused(f"analyze: exit {told.returncode}: {told.stderr[-300:]}")
    return run


def samples(watts: dict[int, float], seconds: Iterable[int] = range(STEPS + 1)) -> str:
    rows = [f"{(T0 + s) * NS},rank {rank},power_w,{w}" for s in seconds for rank, w in watts.items()]
    return "time_ns,component,metric,value\n" + "\n".join(rows) + "\n"


def counter(watts: dict[int, float], reset: int | None = None, broken: bool = False) -> str:
    """DCGM's counter of mJ since it was loaded, every second."""
    lost = 9223372036854775794
    text = "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"
    for rank, w in watts.items():
        for s in range(STEPS + 1):
            since = s if reset is None or s < reset else s - reset
            first = 7_000_000 if reset is None or s < reset else 0
            value = lost if broken else first + round(since * w * 1000)
            text += f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{rank="{rank}"}} {value} {(T0 + s) * 1000}\n'
    return text


def energy_of(t: Trial, run: Path) -> Said:
    said = t.ask(run, "--prices", t.file("prices.toml", f'currency = "EUR"\ngpu_hour = "2"\n{POWER}'))
    found: Said = said["energy"]
    return found


def sampled_power(t: Trial) -> None:
    """800 W over both ranks for a minute, by samples: 48 kJ, not what the states would say."""
    found = energy_of(t, run_folder(t, "a", texts={"power.csv": samples({0: 500, 1: 300})}))
    t.near("joules", (found["joules"] or {}).get("value"), 48_000, 0.001)
    t.holds("source", "sample" in (found["source"] or ""), found)


def sampled_with_gaps(t: Trial) -> None:
    """Twenty of sixty seconds without samples: the gap is not bridged, and coverage says so."""
    seconds = [s for s in range(STEPS + 1) if not 20 < s < 40]
    found = energy_of(t, run_folder(t, "a", texts={"power.csv": samples({0: 500, 1: 500}, seconds)}))
    one = next((one for one in found["sources"] if "sample" in one["name"]), None)
    t.holds("coverage about two thirds", one and 0.6 <= one["coverage"] <= 0.72, found)


def counted(t: Trial) -> None:
    """The counter, which starts at 7 kJ and is set back at the thirtieth second."""
    found = energy_of(t, run_folder(t, "a", texts={"dcgm.txt": counter({0: 500, 1: 300})}))
    t.near("joules", (found["joules"] or {}).get("value"), 48_000, 0.001)
    t.holds("source", "counter" in (found["source"] or ""), found)
    found = energy_of(t, run_folder(t, "b", texts={"dcgm.txt": counter({0: 500, 1: 300}, reset=30)}))
    t.near("joules over a reset", (found["joules"] or {}).get("value"), 48_000, 0.02)


def counter_missing(t: Trial) -> None:
    """9223372036854775794 is no energy: samples count instead."""
    texts = {"dcgm.txt": counter({0: 500, 1: 300}, broken=True), "power.csv": samples({0: 500, 1: 300})}
    found = energy_of(t, run_folder(t, "a", texts=texts))
    t.near("joules", (found["joules"] or {}).get("value"), 48_000, 0.001)
    t.holds("source", "sample" in (found["source"] or ""), found)


def sources_disagree(t: Trial) -> None:
    """Samples say 75 % more than the counter: the interval holds both."""
    texts = {"dcgm.txt": counter({0: 400, 1: 400}), "power.csv": samples({0: 700, 1: 700})}
    found = energy_of(t, run_folder(t, "a", texts=texts))
    said = found["joules"] or {}
    t.near("counter", said.get("value"), 48_000, 0.001)
    t.holds("interval", said and said["lo"] <= 48_001 and said["hi"] >= 83_900, found)


def run_inside_job(t: Trial) -> None:
    """A traced minute of a job of two hours: the minute is measured, the time is counted once."""
    run = run_folder(t, "a", texts={})
    log = t.jobs(job(1, "2026-10-04T23:00:00", "2026-10-05T01:00:00", 2, "gpu-1"))
    said = t.ask(run, log, "--gpu-hour", "1EUR")
    whole = sum(line["rank_ns"] or 0 for line in said["lines"])
    t.holds("four accelerator hours, once, or the two beside each other and said", whole in (14_400 * NS, 14_520 * NS), whole)
    t.money("money", money(said["lines"]), Decimal(whole) / 3600 / NS, "0.001")


PRICE_CASES: tuple[Callable[[Trial], None], ...] = (
    rates_by_host, rate_changes, owned, committed_unused, decimal_money, electricity, wasted_energy, tariff,
    tariff_with_a_hole, tariff_clocks_back, cooling_curve, cooling_number, carbon_by_hour, network_energy, unknown_keys,
    gpu_hour_beside_prices, promises, promise_kept, triage, delay, budget, teams, mapped_hosts, charged_less_than_used,
    sampled_power, sampled_with_gaps, counted, counter_missing, sources_disagree, run_inside_job,
)  # fmt: skip
