"""Cases of `bill_cases.py` about job logs, bills and how they meet: hosts, periods, clocks, currencies, names."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

from bill_trial import HEADER, Trial, charge, drilled, hourly, job, kinds, lines, money, service, shown

A, B, C = "2026-10-05T00:00:00", "2026-10-05T02:00:00", "2026-10-05T04:00:00"
CLOSED = {"BillingPeriodStart": "2026-10-05T00:00:00Z", "BillingPeriodEnd": "2026-10-06T00:00:00Z"}


def one_job(t: Trial) -> None:
    """Two hours of a host, one job on it for all of them."""
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("kept", lines(said, fate="kept"), 40)
    t.money("effective", said["accrual"]["effective"], 40)
    t.holds("closes", said["accrual"]["closes"] and kinds(said) == "none", shown(said))
    t.money("job 1", drilled(said, "job", "1"), 40)
    t.money("host", drilled(said, "host", "gpu-1"), 40)


def half_idle(t: Trial) -> None:
    """Four of eight accelerators for one of two hours: a quarter."""
    said = t.ask(t.jobs(job(1, A, "2026-10-05T01:00:00", 4)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("kept", lines(said, fate="kept"), 10)
    t.money("idle", lines(said, item="idle accelerators"), 30)


def table_in_csv(t: Trial) -> None:
    """A table of jobs instead of sacct, with a price."""
    text = f"job,attempt,start,end,gpus,outcome\nx,1,{A}Z,{B}Z,16,failed\nx,2,{B}Z,{C}Z,16,completed\n"
    said = t.ask(t.file("jobs.csv", text), "--gpu-hour", "2.50EUR")
    t.money("kept", lines(said, fate="kept"), 80)
    t.money("discarded at most", lines(said, fate="discarded at most"), 80)
    t.holds("no bill", said["accrual"]["effective"] is None and said["accrual"]["closes"] is None, said["accrual"])


def table_in_json(t: Trial) -> None:
    """Jobs as JSON with the names of hosts nowhere."""
    jobs = [{"id": "a", "gpus": 4, "attempts": [{"start": A + "Z", "end": B + "Z", "status": "completed"}]}]
    said = t.ask(t.file("jobs.json", json.dumps(jobs)), "--gpu-hour", "3USD")
    t.money("kept", lines(said, fate="kept"), 24)
    t.holds("currency", said["currency"] == "USD", said["currency"])
    t.money("job", drilled(said, "job", "a"), 24)
    t.money("host unknown", drilled(said, "host", None), 24)


def no_hosts(t: Trial) -> None:
    """Logs without hosts: the bill is unmatched, and says so; it is not free, and does not count twice."""
    header = HEADER.replace("|NodeList", "")
    rows = [job(1, A, B).rpartition("|")[0]]
    said = t.ask(t.jobs(*rows, header=header), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("effective", said["accrual"]["effective"], 40)
    booked = money(said["unmatched"]) if said["unmatched"] else lines(said, fate="kept")
    t.money("unmatched, or the only job's", booked, 40)
    t.holds("not doubled", money(said["lines"]) <= 80 and not (said["accrual"]["closes"] and said["unmatched"]
            and lines(said, fate="kept") > 0), shown(said))  # fmt: skip


def no_counts(t: Trial) -> None:
    """A log that counts nodes, not accelerators: the whole host was held, or nobody knows; never an eighth of it."""
    said = t.ask(t.jobs(job(1, A, B, None)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("kept", lines(said, fate="kept"), 40)
    t.money("effective", said["accrual"]["effective"], 40)


def two_bills(t: Trial) -> None:
    """Two files, two invoices."""
    first = t.bill(hourly("gpu-1", A, 2, 20), "one.csv")
    second = t.bill(hourly("gpu-2", A, 2, "10.5", InvoiceId="INV-2"), "two.csv")
    log = t.jobs(job(1, A, B, 16, "gpu-[1-2]", count=2))
    said = t.ask(log, "--focus", first, "--focus", second)
    t.money("kept", lines(said, fate="kept"), 61)
    found = {one["id"]: Decimal(one["billed"]) for one in said["invoices"]}
    t.holds("invoices", found == {"INV-1": 40, "INV-2": 21}, found)


def half_missing(t: Trial) -> None:
    """Two hosts were held, one was charged: 40 used without a charge."""
    said = t.ask(t.jobs(job(1, A, B, 16, "gpu-[1-2]", count=2)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("effective", said["accrual"]["effective"], 40)
    t.money("residual", said["accrual"]["residual"], -40)
    t.holds("not closed", said["accrual"]["closes"] is False, said["accrual"])
    t.holds("named", "missing" in kinds(said) or said["period"]["open"], shown(said))


def empty_bill(t: Trial) -> None:
    """A header and nothing else: refused in a line, or a bill of 0."""
    code, out, told = t.call(t.jobs(job(1, A, B)), "--focus", t.bill([]), "--json", "-q")
    fine = (code == 4 and len(told.splitlines()) == 1) or (code == 0 and Decimal(json.loads(out)["accrual"]["effective"]) == 0)
    t.holds("said", fine, f"exit {code}: {told} {out[:200]}")


def beyond_accelerators(t: Trial) -> None:
    """Two jobs say that they held all eight at once: the charge is divided once, and it is said."""
    log = t.jobs(job(1, A, B), job(2, A, B))
    said = t.ask(log, "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("job 1", drilled(said, "job", "1"), 20)
    t.money("job 2", drilled(said, "job", "2"), 20)
    t.money("ledger", said["accrual"]["ledger"], 40)


def yen(t: Trial) -> None:
    """A currency without decimals."""
    rows = hourly("gpu-1", A, 2, 3001, BillingCurrency="JPY", PricingCurrency="JPY")
    said = t.ask(t.jobs(job(1, A, "2026-10-05T01:20:00")), "--focus", t.bill(rows))
    t.holds("currency", said["currency"] == "JPY", said["currency"])
    t.money("kept", lines(said, fate="kept"), Decimal(3001) + Decimal(3001) / 3)
    t.money("effective", said["accrual"]["effective"], 6002)
    t.holds("closes", said["accrual"]["closes"], said["accrual"])


def tiny(t: Trial) -> None:
    """A thousand charges of 1e-12: their sum is a billionth, and none is lost."""
    rows = [service("Storage", "0.000000000001", ResourceId=f"b{k}", ResourceName=f"b{k}") for k in range(1000)]
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill([*rows, *hourly("gpu-1", A, 2, 20)]))
    t.money("effective", said["accrual"]["effective"], "40.000000001", "1e-12")
    t.money("lines", money(said["lines"]), "40.000000001", "1e-12")


def huge(t: Trial) -> None:
    """A charge of 1e12: exact, or refused in a line; never something else."""
    code, out, told = t.call(t.jobs(job(1, A, B)), "--focus", t.bill(hourly("gpu-1", A, 1, "1000000000000")), "--json", "-q")
    exact = code == 0 and Decimal(json.loads(out)["accrual"]["effective"]) == 10**12
    if code == 0:
        t.laws(json.loads(out))
    t.holds("exact or refused", exact or (code == 4 and len(told.splitlines()) == 1), f"exit {code}: {told} {out[:300]}")


def below_zero(t: Trial) -> None:
    """A credit larger than the bill."""
    no = dict.fromkeys(("PricingQuantity", "PricingUnit", "SkuId", "SkuPriceId", "ConsumedQuantity", "ConsumedUnit"))
    credit = service("Other", -100, ChargeCategory="Credit", **no)
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill([*hourly("gpu-1", A, 2, 20), credit]))
    t.money("effective", said["accrual"]["effective"], -60)
    t.money("credit", lines(said, item="credit"), -100)
    t.money("kept", lines(said, fate="kept"), 40)
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said))


def alike(t: Trial) -> None:
    """gpu-1 and gpu-11: the name of one holds that of the other."""
    rows = hourly("i-a", A, 2, 20, ResourceName="worker gpu-1") + hourly("i-b", A, 2, 30, ResourceName="worker gpu-11")
    said = t.ask(t.jobs(job(1, A, B, nodes="gpu-1"), job(2, A, B, nodes="gpu-11")), "--focus", t.bill(rows))
    t.money("job 1", drilled(said, "job", "1"), 40)
    t.money("job 2", drilled(said, "job", "2"), 60)


def alike_and_idle(t: Trial) -> None:
    """Only gpu-11 is in the logs, and only i-a (gpu-1) is in the bill: they are not the same."""
    said = t.ask(t.jobs(job(2, A, B, nodes="gpu-11")), "--focus", t.bill(hourly("i-a", A, 2, 20, ResourceName="gpu-1")))
    t.money("unmatched", money(said["unmatched"]), 40)
    t.holds("none of it is job 2's", not said["accrual"]["closes"] or said["unmatched"], shown(said))


def domains(t: Trial) -> None:
    """Short names here, with their domain and in capitals there, both ways."""
    rows = hourly("GPU-1", A, 2, 20) + hourly("gpu-2.lab.example.org", A, 2, 30)
    said = t.ask(t.jobs(job(1, A, B, nodes="gpu-1.lab.example.org"), job(2, A, B, nodes="gpu-2")), "--focus", t.bill(rows))
    t.money("job 1", drilled(said, "job", "1"), 40)
    t.money("job 2", drilled(said, "job", "2"), 60)


def other_period(t: Trial) -> None:
    """A month without charges and without jobs: nothing, and no crash."""
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)), "--period", "2026-08")
    t.money("lines", money(said["lines"]), 0)
    t.holds("period", (said["period"]["start"] or "").startswith("2026-08-01"), said["period"])


def cut_period(t: Trial) -> None:
    """A job over midnight, billed for the first day: half of it."""
    log = t.jobs(job(1, "2026-10-05T22:00:00", "2026-10-06T02:00:00"))
    rows = hourly("gpu-1", "2026-10-05T22:00:00", 4, 10)
    said = t.ask(log, "--focus", t.bill(rows), "--period", "2026-10-05")
    t.money("kept", lines(said, fate="kept"), 20)
    t.money("effective", said["accrual"]["effective"], 20)
    t.holds("closes", said["accrual"]["closes"], shown(said))


def cut_charge(t: Trial) -> None:
    """A charge of two days over the border of the period: its half."""
    rows = [charge("2026-10-05T00:00:00Z", "2026-10-07T00:00:00Z", 24)]
    log = t.jobs(job(1, "2026-10-05T00:00:00", "2026-10-07T00:00:00"))
    said = t.ask(log, "--focus", t.bill(rows), "--period", "2026-10-06/2026-10-07")
    t.money("kept", lines(said, fate="kept"), 12)
    t.money("effective", said["accrual"]["effective"], 12)


def still_open(t: Trial) -> None:
    """On the tenth: the month is open, nothing is missing, what runs uncharged is not a defect."""
    log = t.jobs(job(1, "2026-10-01T00:00:00", "2026-10-10T12:00:00"))
    said = t.ask(log, "--focus", t.bill(hourly("gpu-1", "2026-10-01T00:00:00", 9 * 24, 10)))
    t.holds("open", said["period"]["open"] is True, said["period"])
    t.holds("no defect", kinds(said) == "none", kinds(said))
    t.money("effective", said["accrual"]["effective"], 2160)
    t.money("kept that is charged", drilled(said, "day", "2026-10-09"), 240)


def interrupted(t: Trial) -> None:
    """Three spot instances under one name, taken away twice: 20 + 40 minutes lost, an hour kept."""
    spans = [
        ("00:00:00", "00:20:00", "PREEMPTED"),
        ("01:00:00", "01:40:00", "PREEMPTED"),
        ("02:00:00", "03:00:00", "COMPLETED"),
    ]
    log = t.jobs(*(job(1, f"2026-10-05T{a}", f"2026-10-05T{b}", state=s) for a, b, s in spans))
    costs = ("2.00", "4.00", "6.00")
    rows = [charge(f"2026-10-05T{a}Z", f"2026-10-05T{b}Z", c, PricingCategory="Dynamic", SkuPriceId="gpu8.spot")
            for (a, b, _), c in zip(spans, costs, strict=True)]  # fmt: skip
    said = t.ask(log, "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 6)
    t.money("discarded at most", lines(said, fate="discarded at most"), 6)
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said))


def without_end(t: Trial) -> None:
    """An attempt that still runs, of which only the time so far is known."""
    header = HEADER
    row = f"1|train||RUNNING|{A}|{A}|Unknown|02:00:00|0:0|gres/gpu=8,node=1|gpu-1"
    said = t.ask(t.jobs(row, header=header), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("kept", lines(said, fate="kept"), 40)


def clocks_back(t: Trial) -> None:
    """25 October 2026 in Berlin: midnight to six by the clock are seven hours."""
    log = t.jobs(job(1, "2026-10-25T00:00:00+02:00", "2026-10-25T06:00:00+01:00"))
    said = t.ask(log, "--gpu-hour", "1EUR")
    t.money("seven hours of eight", lines(said, fate="kept"), 56)
    rows = [charge("2026-10-25T00:00:00+02:00", "2026-10-25T06:00:00+01:00", 70)]
    said = t.ask(log, "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 70)
    t.holds("no defect", kinds(said) == "none", kinds(said))


def offsets(t: Trial) -> None:
    """A bill in local time that names its offset is no defect."""
    rows = [charge(f"2026-10-05T{2 + k:02}:00:00+02:00", f"2026-10-05T{3 + k:02}:00:00+02:00", 20) for k in range(2)]
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 40)
    t.holds("no defect", kinds(said) == "none", kinds(said))


def leap_second(t: Trial) -> None:
    """23:59:60 is no time: its charge is in the sum, and nothing breaks."""
    rows = [*hourly("gpu-1", A, 2, 20), charge("2026-10-05T23:59:60Z", "2026-10-06T00:00:00Z", 5, "gpu-9")]
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    t.money("lines", money(said["lines"]), 45)
    t.money("kept", lines(said, fate="kept"), 40)


def backwards(t: Trial) -> None:
    """A charge that ends before it begins, one without length: in the sum."""
    rows = [*hourly("gpu-1", A, 2, 20), charge(B + "Z", A + "Z", 7), charge(C + "Z", C + "Z", 3)]
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    whole = money(said["lines"]) + sum(Decimal(one["money"]) for one in said["defects"])
    t.holds("every euro once", Decimal(said["accrual"]["effective"]) == 50 and whole >= 50, shown(said))


def strange_tags(t: Trial) -> None:
    """Tags with empty, long, nested and foreign keys, and some that are no JSON."""
    tags = ['{"": "x", "😀": null, "a\\"b": ["gpu-1"], "n": {"Name": "gpu-2"}}', "{broken", '["gpu-2"]',
            '{"Name": 7, "user:Name": "gpu-1"}']  # fmt: skip
    rows = [dict(row, Tags=tag) for row, tag in zip(hourly("gpu-1", A, 4, 20), tags, strict=True)]
    said = t.ask(t.jobs(job(1, A, C)), "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 80)


def hostile_names(t: Trial) -> None:
    """HTML, formulas and escapes in the names of jobs and resources: data, never instructions."""
    names = ("<script>alert(1)</script>", "=HYPERLINK(1)", "\x1b[31mred\x1b[0m")
    log = t.jobs(*(job(k, A, B, 2, name=name, account=name) for k, name in enumerate(names, 1)))
    bill = t.bill([*hourly("gpu-1", A, 2, 20), *hourly("\x1b[2Jx<b>", A, 1, 3)])
    said = t.ask(log, "--focus", bill)
    t.money("effective", said["accrual"]["effective"], 43)
    for by in ("job", "team", "host"):
        code, out, told = t.call(log, "--focus", bill, "--by", by)
        t.holds(
            f"screen by {by}", code == 0 and "\x1b[31m" not in out + told and "\x1b[2J" not in out + told, f"exit {code} {told}"
        )


def teams_of_accounts(t: Trial) -> None:
    """Slurm's account is who pays."""
    log = t.jobs(job(1, A, B, 4, account="vision"), job(2, A, B, 4, account="speech"))
    said = t.ask(log, "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("vision", drilled(said, "team", "vision"), 20)
    t.money("speech", drilled(said, "team", "speech"), 20)


def disks_of_hosts(t: Trial) -> None:
    """Disks and network named after a host are no accelerators."""
    disk = service("Storage", 8, ResourceId="vol-1", ResourceName="gpu-1", Tags='{"Name": "gpu-1"}')
    nat = service("Networking", 3, Tags='{"Name": "gpu-1"}')
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill([*hourly("gpu-1", A, 2, 20), disk, nat]))
    t.money("kept", lines(said, fate="kept"), 40)
    t.money("storage", lines(said, item="storage"), 8)
    t.money("network", lines(said, item="network"), 3)


def all_in_cents(t: Trial) -> None:
    """A provider that rounds everything to cents, list cost too: no defect."""
    rows = []
    for k in range(40):
        end = f"2026-10-05T{k // 2:02}:{30 * (k % 2) + 17:02}:{k:02}Z"
        seconds = 17 * 60 + k
        hours = (Decimal(seconds) / 3600).quantize(Decimal("1e-6"))
        cost = (hours * Decimal("23.37")).quantize(Decimal("0.01"))
        start, price = f"2026-10-05T{k // 2:02}:{30 * (k % 2):02}:00Z", "23.37"
        same = {"PricingQuantity": hours, "ConsumedQuantity": hours, "ListUnitPrice": price, "ContractedUnitPrice": price}
        rows.append(charge(start, end, cost, **same))
    log = t.jobs(*(job(k, str(row["ChargePeriodStart"])[:-1], str(row["ChargePeriodEnd"])[:-1]) for k, row in enumerate(rows)))
    said = t.ask(log, "--focus", t.bill(rows))
    t.holds("no defect", kinds(said) == "none" and said["accrual"]["closes"], shown(said)[-260:])


def one_row_a_month(t: Trial) -> None:
    """A host as one charge for the whole month, one job for a tenth of it."""
    row = charge("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", 7440)
    said = t.ask(t.jobs(job(1, "2026-10-04T00:00:00", "2026-10-07T02:24:00")), "--focus", t.bill([row]))
    t.money("kept", lines(said, fate="kept"), 744)
    t.money("idle", lines(said, item="idle accelerators"), 6696)
    t.holds("closed", said["period"]["open"] is False and said["accrual"]["closes"], shown(said))


def processors_only(t: Trial) -> None:
    """A job on processors of a host of accelerators pays for none of them."""
    cpu = f"2|prep||COMPLETED|{A}|{A}|{B}||0:0|billing=8,cpu=8,mem=4G,node=1|gpu-1"
    said = t.ask(t.jobs(job(1, A, B, 4), cpu), "--focus", t.bill(hourly("gpu-1", A, 2, 20)))
    t.money("job 1", drilled(said, "job", "1"), 20)
    t.money("idle", lines(said, item="idle accelerators"), 20)
    t.holds("job 2 nothing", drilled(said, "job", "2") in (None, Decimal(0)), drilled(said, "job", "2"))


def other_pricing_currency(t: Trial) -> None:
    """Priced in dollars, billed in euros: one currency."""
    rows = hourly("gpu-1", A, 2, 20, PricingCurrency="USD", PricingCurrencyEffectiveCost=22)
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    t.money("effective", said["accrual"]["effective"], 40)
    t.holds("currency", said["currency"] == "EUR" and kinds(said) == "none", kinds(said))


def never_used(t: Trial) -> None:
    """A host of ours that no job used: its money is idle or unmatched, once."""
    rows = hourly("gpu-1", A, 2, 20) + hourly("gpu-2", A, 2, 20)
    said = t.ask(t.jobs(job(1, A, B)), "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 40)
    t.money("idle or unmatched", lines(said, item="idle accelerators") + lines(said, item="unmatched"), 40)
    t.holds("closes", said["accrual"]["closes"], said["accrual"])


def uneven(t: Trial) -> None:
    """Twelve accelerators on two hosts: a log cannot tell 8 + 4 from 6 + 6, but twelve of sixteen were held."""
    rows = hourly("gpu-1", A, 2, 20) + hourly("gpu-2", A, 2, 20)
    said = t.ask(t.jobs(job(1, A, B, 12, "gpu-[1-2]", count=2)), "--focus", t.bill(rows))
    t.money("kept", lines(said, fate="kept"), 60)
    t.money("idle", lines(said, item="idle accelerators"), 20)


def two_currencies(t: Trial) -> None:
    """Refused with both amounts; with --currency the other one is left out and named."""
    rows = [*hourly("gpu-1", A, 2, 20), service("Other", "7.77", BillingCurrency="USD", PricingCurrency="USD")]
    log, bill = t.jobs(job(1, A, B)), t.bill(rows)
    t.refused("refused", log, "--focus", bill, telling=("EUR", "USD", "40", "7.77"))
    said = t.ask(log, "--focus", bill, "--currency", "EUR")
    t.money("effective", said["accrual"]["effective"], 40)
    t.holds("named", "7.77" in str(said["defects"]), said["defects"])
    said = t.ask(log, "--focus", bill, "--currency", "USD")
    t.money("effective in dollars", said["accrual"]["effective"], "7.77")


def prices_in_other_currency(t: Trial) -> None:
    """A bill in euros beside a rate in dollars: refused, or one of them unused and said; never added."""
    code, out, told = t.call(
        t.jobs(job(1, A, C)), "--focus", t.bill(hourly("gpu-1", A, 2, 20)), "--gpu-hour", "2USD", "--json", "-q"
    )
    said = json.loads(out) if code == 0 else {}
    fine = code == 4 or (said["currency"] == "EUR" and lines(said, fate="kept") in (40, 80))
    t.holds("not added", fine, f"exit {code} {told} {shown(said) if said else ''}")


def no_bill_at_all(t: Trial) -> None:
    """Without prices money is null, and time is there."""
    said = t.ask(t.jobs(job(1, A, B)))
    t.holds("null", all(line["money"] is None for line in said["lines"]) and said["lines"], said["lines"])
    t.holds("time", sum(line["rank_ns"] or 0 for line in said["lines"]) == 16 * 3600 * 10**9, said["lines"])
    t.holds("named", any("pric" in one.lower() for one in said["missing"]), said["missing"])


def not_a_bill(t: Trial) -> None:
    """Files that are no bills, or no jobs: one line."""
    log = t.jobs(job(1, A, B))
    t.refused("text", log, "--focus", t.file("x.csv", "a,b\n1,2\n"))
    t.refused("missing file", log, "--focus", "nowhere.csv")
    t.refused("bad number", log, "--focus", t.bill([charge(A + "Z", B + "Z", "12,x4")], "bad.csv"))


FOCUS_CASES: tuple[Callable[[Trial], None], ...] = (
    one_job, half_idle, table_in_csv, table_in_json, no_hosts, no_counts, two_bills, half_missing, empty_bill,
    beyond_accelerators, yen, tiny, huge, below_zero, alike, alike_and_idle, domains, other_period, cut_period, cut_charge,
    still_open, interrupted, without_end, clocks_back, offsets, leap_second, backwards, strange_tags, hostile_names,
    teams_of_accounts, disks_of_hosts, all_in_cents, one_row_a_month, processors_only, other_pricing_currency, never_used,
    uneven, two_currencies, prices_in_other_currency, no_bill_at_all, not_a_bill,
)  # fmt: skip
