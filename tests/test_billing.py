"""``taut bill`` and ``taut.bill``: run folders and logs in, a bill that adds up out; traces are refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import taut
from build import job
from focus_bills import bill as focus_bill
from focus_bills import usage
from small_bill import HOURS, SACCT
from taut.cli import main
from taut.run import analyze_trace


@pytest.fixture
def sacct(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT, encoding="utf-8")
    return path


def run(*args: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["bill", *map(str, args)], input=stdin)


def object_of(*args: object) -> dict[str, Any]:
    result = run(*args, "--json", "-q")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def money(rows: list[dict[str, Any]], key: str = "name") -> dict[str | None, str]:
    return {row[key]: row["money"] for row in rows}


def test_a_log_and_a_price(sacct: Path) -> None:
    found = object_of(sacct, "--gpu-hour", "2.50EUR")
    assert money(found["categories"]) == {"useful work": "20.00", "re-runs and discarded work": "10.00"}
    assert found["accrual"] == {"ledger": "30.00", "effective": None, "residual": None, "closes": None, "explained": None,
                                "not_charged_yet": None}  # fmt: skip
    assert money(found["by"]["team"]) == {"vision": "20.00", "speech": "10.00"}
    assert money(found["by"]["cause"]) == {"node failed": "10.00", None: "20.00"}
    assert found["verdict"] == (
        "2026-10-05 cost 30.00 EUR: 67 % useful work, 33 % re-runs and discarded work (the largest: node failed, 10.00 EUR); "
        "at the price given, without a bill to close to."
    )


def test_logs_that_an_executor_reads_give_the_same_bill(sacct: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert taut.bill(sacct, on=pool).to_json() == taut.bill(sacct).to_json()


def test_a_bill_closes_to_the_unit(sacct: Path, tmp_path: Path) -> None:
    found = object_of(sacct, "--focus", focus_bill(tmp_path, HOURS))
    assert found["accrual"] == {
        "ledger": "40.00",
        "effective": "40.00",
        "residual": "0.00",
        "closes": True,
        "not_charged_yet": "0.00",
        "explained": "0.00",
    }
    closed = {"billed": "40.00", "allocated": "40.00", "residual": "0.00", "explained": "0.00", "closes": True}
    assert found["invoices"] == [{"id": "inv-1", **closed}]
    assert money(found["categories"]) == {
        "useful work": "20.00", "re-runs and discarded work": "10.00", "over-provisioning": "10.00",
    }  # fmt: skip
    assert money(found["by"]["host"]) == {"node1": "40.00"}
    assert "the bill closes" in found["verdict"]
    assert found["period"] == {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z", "open": True}


def test_without_a_price_time_has_its_fates_and_money_is_null(sacct: Path) -> None:
    found = object_of(sacct)
    assert {line["money"] for line in found["lines"]} == {None}
    assert sum(line["rank_ns"] for line in found["lines"]) == 12 * 3_600_000_000_000
    assert any(line.startswith("gpu_hour") for line in found["missing"])
    assert found["accrual"]["ledger"] is None


@pytest.mark.parametrize(
    ("period", "ledger"),
    [("2026-10", "30.00"), ("2026-10-05", "30.00"), ("2026-10-01/2026-10-05", None), ("2026-11", None)],
)
def test_periods(sacct: Path, period: str, ledger: str | None) -> None:
    assert object_of(sacct, "--gpu-hour", "2.50EUR", "--period", period)["accrual"]["ledger"] == ledger


def test_charges_of_no_job_go_to_the_team_of_their_tags(sacct: Path, tmp_path: Path) -> None:
    disk = usage("1.2", ServiceCategory="Storage", ServiceName="Disks", ResourceId="d1", ResourceName="d1", ResourceType="Disk",
                 ServiceSubcategory="Other (Storage)", SkuPriceDetails="", SkuMeter="",
                 Tags='{"user:Team": "infra"}')  # fmt: skip
    found = object_of(sacct, "--focus", focus_bill(tmp_path, [*HOURS, disk]))
    assert money(found["by"]["team"]) == {"vision": "30.00", "infra": "20.00", "speech": "10.00"}
    # The host is tagged with vision, whose is what nobody held of it.


def test_cash_and_budget(sacct: Path, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'currency = "EUR"\ngpu_hour = 2.50\n[triage]\nhours = 2\nper_hour = 40\n[budget]\namount = 100\nper = "period"\n'
        "[delay]\nper_day = 24\n",
        encoding="utf-8",
    )
    found = object_of(sacct, "--prices", prices)
    assert money(found["categories"]) == {
        "useful work": "20.00", "re-runs and discarded work": "10.00", "SLA and deadlines": "1.00",
        "operational complexity": "80.00",
    }  # fmt: skip
    assert found["budget"] == {"budget": "100.00", "actual": "111.00", "forecast": "111.00", "left": "-11.00"}


def test_a_run_folder_is_priced_and_its_findings_have_money(tmp_path: Path) -> None:
    lines = {rank: "fwd 9 | AR 2" if rank == 2 else "fwd 5 | AR 2" for rank in range(4)}
    folder = analyze_trace(job(lines, steps=8)).save(tmp_path / "run")
    found = taut.bill(folder, prices=taut.Prices(gpu_hour=Decimal("3600000"), currency="EUR")).result
    # Four ranks, 8 steps of 11 ms, a thousand an accelerator second.
    assert found.accrual.ledger == "352.00"
    assert {one.fate for one in found.lines} == {"productive", "slow compute", "fault wait", "exposed transfer"}
    assert [one.remedy for one in found.recoverable] == ["repair rank 2 (node)", "another fabric for job, at most"]
    (late,) = found.causes
    assert found.causes[late] == "rank 2 (node), straggler cascade"
    assert {one.cause for one in found.lines if one.fate in ("fault wait", "slow compute")} == {late}


def test_what_is_named_twice_counts_once(sacct: Path, tmp_path: Path) -> None:
    folder = taut.analyze(sacct).save(tmp_path / "run")
    for inputs in ((sacct, sacct), (folder, folder), (folder, sacct)):
        assert object_of(*inputs, "--gpu-hour", "2.50EUR")["accrual"]["ledger"] == "30.00", inputs


def test_kept_as_a_run_folder_and_not_billed_again(sacct: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(sacct, "--focus", focus_bill(tmp_path, HOURS), "-o", out)
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "booked.parquet", "charges.parquet", "held.parquet", "lines.parquet", "run.json",
    ]  # fmt: skip
    assert pq.read_table(out / "booked.parquet")["effective"].to_pylist() != []
    again = run(out)
    assert again.exit_code == 1
    assert again.stderr.startswith(f"taut: {out}: is a bill already; ")


def test_in_python(sacct: Path) -> None:
    found = taut.bill([sacct], prices=taut.Prices(gpu_hour=Decimal("2.5"), currency="EUR"))
    assert json.loads(found.to_json())["verdict"] == found.verdict == found.result.verdict
    assert repr(found).startswith("<Bill: 2026-10-05 cost 30.00 EUR")
    assert "useful work" in found._repr_html_()


def test_the_same_input_gives_the_same_bytes(sacct: Path) -> None:
    assert run(sacct, "--json", "-q").stdout == run(sacct, "--json", "-q").stdout


TRACE = '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5, "args": {}}]}'


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        ([], 2, "nothing to bill"),
        (["sacct.txt", "--by", "teams"], 2, "did you mean team? give one of cause, rank, host, job, team, day"),
        (["sacct.txt", "--period", "October"], 2, "--period October: no period; write 2026-10"),
        (["sacct.txt", "--period", "2026-10-05/2026-10-01"], 2, "ends before it begins"),
        (["sacct.txt", "--prices", "p.toml", "--gpu-hour", "2EUR"], 2, "--gpu-hour and --prices: give one of them"),
        (["sacct.txt", "--carbon", "0.3"], 2, "--carbon needs --power"),
        (["sacct.txt", "--prices", "none.toml"], 4, "none.toml"),
        (["sacct.txt", "--focus", "sacct.txt"], 4, "not a FOCUS file"),
        (["trace.json"], 4, "holds traces, and a bill prices what was analysed; analyze them first: taut analyze trace.json"),
        (["nothing"], 4, "nothing"),
    ],
)
def test_refusals_are_one_line(
    sacct: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, says: str
) -> None:  # fmt: skip
    monkeypatch.chdir(sacct.parent)
    Path("trace.json").write_text(TRACE, encoding="utf-8")
    result = run(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) <= (3 if code == 2 else 1), result.stderr


def test_logs_that_count_nodes_have_a_price_where_hosts_tell_their_accelerators(tmp_path: Path) -> None:
    log, prices = tmp_path / "sacct.txt", tmp_path / "prices.toml"
    log.write_text(
        "JobID|State|Start|End|NNodes|NodeList\n1|COMPLETED|2026-10-05T10:00:00|2026-10-05T11:00:00|2|n[1-2]\n",
        encoding="utf-8",
    )
    bare = object_of(log, "--gpu-hour", "2.50EUR")
    assert (bare["accrual"]["ledger"], bare["missing"][-1]) == (
        None, "accelerators of 1 jobs: their logs count nodes, which have no price (sacct: add AllocTRES)",
    )  # fmt: skip
    prices.write_text('currency = "EUR"\ngpu_hour = 2.50\n[hosts]\naccelerators = 8\n', encoding="utf-8")
    assert object_of(log, "--prices", prices)["accrual"]["ledger"] == "40.00"


def test_philly_with_a_price(shared: Path) -> None:
    found = object_of(shared / "philly-restarts" / "jobs.json", "--gpu-hour", "2.50USD")
    shares = {row["name"]: row["share"] for row in found["categories"]}
    assert shares["re-runs and discarded work"] == pytest.approx(0.2071, abs=5e-5)
    assert len(found["by"]["job"]) == 3034


def test_the_published_sample_closes_and_its_broken_rules_are_named(shared: Path) -> None:
    found = object_of("--focus", shared / "focus" / "focus_sample.csv")
    assert round(Decimal(found["accrual"]["effective"]), 3) == Decimal("14.977")
    assert found["accrual"]["closes"]
    assert {one["kind"] for one in found["defects"]} >= {"negative charge", "price times quantity"}
    assert all(one["closes"] for one in found["invoices"])
    assert sum(round(Decimal(one["billed"]), 3) for one in found["invoices"]) == Decimal("20.520")
    assert sum(rule["validator"] is not None for rule in found["rules"]) == 11


SMALL = (
    "BilledCost,EffectiveCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ResourceId,ServiceCategory\n"
    "20,20,EUR,2026-10-05T10:00:00Z,2026-10-05T11:00:00Z,Usage,node1,Compute\n"
)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [(SMALL, ["BILL"], "is a FOCUS bill, and no log of jobs; give --focus"),
     (SMALL * 2, ["--focus", "BILL"], "row 2: is a header again: files were put together"),
     (SMALL, ["--focus", "BILL", "--gpu-hour", "2USD"], "prices in USD beside a bill in EUR"),
     (SMALL.replace("node1", "nod\xe4"), ["--focus", "BILL"], "save it as UTF-8")],
)  # fmt: skip
def test_a_bill_that_is_given_wrongly_is_refused_in_words(tmp_path: Path, text: str, given: list[str], said: str) -> None:
    path = tmp_path / "bill.csv"
    path.write_bytes(text.encode("latin-1"))
    done = CliRunner().invoke(main, ["bill", *(str(path) if one == "BILL" else one for one in given)])
    assert done.exit_code == 4
    assert said in done.stderr


def test_the_headline_says_both_what_lines_and_what_charges_come_to(sacct: Path, tmp_path: Path) -> None:
    found = object_of(sacct, "--focus", focus_bill(tmp_path, [*HOURS, HOURS[0]]))
    assert " cost 40.00 EUR by its lines, 60.00 EUR charged: " in str(found["verdict"])


def test_a_credit_that_leaves_little_makes_no_shares_above_the_whole(sacct: Path, tmp_path: Path) -> None:
    credit = HOURS[0] | {"ChargeCategory": "Credit", "BilledCost": "-35.00", "EffectiveCost": "-35.00"}
    found = object_of(sacct, "--focus", focus_bill(tmp_path, [*HOURS, credit]))
    assert "-35.00 EUR corrections and credits" in str(found["verdict"])
    assert "%" not in str(found["verdict"])


def test_an_attempt_that_was_requeued_was_not_cancelled(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "job,attempt,start,end,gpus,nodes,team,outcome\n"
        "a,1,2026-10-05T10:00:00Z,2026-10-05T11:00:00Z,8,node1,vision,requeued\n"
        "a,2,2026-10-05T11:00:00Z,2026-10-05T12:00:00Z,8,node1,vision,completed\n",
        encoding="utf-8",
    )
    found = object_of(tmp_path / "jobs.csv", "--gpu-hour", "2EUR")
    assert [one["name"] for one in found["by"]["cause"]] == [None, "requeued by scheduler"]
