"""``taut export --to focus``: a bill as FOCUS rows that add up to it; what is no bill is refused."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from focus_bills import bill as focus_bill
from focus_bills import usage
from small_bill import HOURS, SACCT
from taut.cli import main
from taut.read.focus.focus_reader import read_focus


def taut_(*args: object) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


def made(folder: Path, *options: object) -> Path:
    """The run folder of a bill."""
    (folder / "sacct.txt").write_text(SACCT, encoding="utf-8")
    done = taut_("bill", folder / "sacct.txt", *options, "-q", "-o", folder / "bill")
    assert done.exit_code == 0, done.stderr
    return folder / "bill"


@pytest.fixture
def charged(tmp_path: Path) -> Path:
    return made(tmp_path, "--focus", focus_bill(tmp_path, HOURS))


@pytest.fixture
def priced(tmp_path: Path) -> Path:
    return made(tmp_path, "--gpu-hour", "2.50EUR")


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def by(found: list[dict[str, str]], *names: str) -> dict[tuple[str, ...], Decimal]:
    sums: dict[tuple[str, ...], Decimal] = defaultdict(Decimal)
    for row in found:
        sums[tuple(row[f"x_taut_{name}"] for name in names)] += Decimal(row["EffectiveCost"])
    return dict(sums)


def test_the_rows_of_a_bill_are_its_lines(charged: Path) -> None:
    found = rows(taut_("export", charged, "--to", "focus", "-o", "-").stdout)
    assert by(found, "job", "team", "fate", "cause", "item") == {
        ("1", "vision", "kept", "", "accelerator time"): Decimal(10),
        ("1", "vision", "discarded at most", "node failed", "accelerator time"): Decimal(10),
        ("2", "speech", "kept", "", "accelerator time"): Decimal(10),
        ("", "", "", "", "idle accelerators"): Decimal(10),
    }
    result = json.loads((charged / "run.json").read_bytes())["result"]
    assert by(found, "category") == {(one["name"],): Decimal(one["money"]) for one in result["categories"] if one["money"]}


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.4"])
def test_a_bill_at_given_prices_is_one_of_the_provider_internal(priced: Path, version: str) -> None:
    done = taut_("export", priced, "--to", "focus", "--version", version, "-o", priced.parent / "out.csv")
    assert done.stderr == f"written: {priced.parent / 'out.csv'}\n"
    charges = read_focus(priced.parent / "out.csv")
    assert charges.broken == ()
    found = rows((priced.parent / "out.csv").read_text())
    assert sum(by(found, "job").values()) == Decimal(30)
    assert {row["ServiceProviderName" if version == "1.4" else "ProviderName"] for row in found} == {"internal"}
    assert all(row["ListCost"] == row["EffectiveCost"] for row in found)


def test_what_was_exported_closes_as_a_bill_of_the_same_jobs(priced: Path) -> None:
    taut_("export", priced, "--to", "focus", "--parquet", "-o", priced.parent / "out.parquet")
    assert pq.read_table(priced.parent / "out.parquet").num_rows == 3
    again = taut_("bill", priced.parent / "sacct.txt", "--focus", priced.parent / "out.parquet", "--json")
    accrual = json.loads(again.stdout)["accrual"]
    assert [accrual[key] for key in ("ledger", "effective", "residual", "closes")] == ["30.00", "30.00", "0.00", True]


def test_without_a_file_it_is_added_to_the_bill_and_replaced(charged: Path) -> None:
    for _ in range(2):
        assert taut_("export", charged, "--to", "focus").stderr == f"written: {charged / 'focus.csv'}\n"
    assert "focus.csv" in json.loads((charged / "run.json").read_bytes())["files"]


def test_money_that_is_no_charge_is_told_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('currency = "EUR"\ngpu_hour = "2.50"\n[triage]\nhours = 2\nper_hour = "95"\n')
    bill = made(tmp_path, "--prices", tmp_path / "prices.toml")
    done = taut_("export", bill, "--to", "focus")
    assert done.stderr.splitlines()[-1] == "190.00 EUR are no charges of a provider (triage hours): not written"


def test_a_bill_without_money_is_refused(tmp_path: Path) -> None:
    done = taut_("export", made(tmp_path), "--to", "focus")
    assert (done.exit_code, "no money to export; make the bill with --prices" in done.stderr) == (2, True)


def test_what_is_no_bill_names_the_command_that_makes_one(priced: Path, tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    taut_("analyze", log, "-q", "-o", tmp_path / "run")
    done = taut_("export", tmp_path / "run", "--to", "focus")
    assert f"{tmp_path / 'run'}: not a bill; make one with: taut bill {tmp_path / 'run'}" in done.stderr
    assert done.exit_code == taut_("export", tmp_path / "nothing", "--to", "perfetto").exit_code


def test_a_damaged_bill_is_refused_in_one_line(charged: Path) -> None:
    path = charged / "booked.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    done = taut_("export", charged, "--to", "focus")
    assert done.exit_code != 0
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "perfetto", "--version", "1.2"], "--version is of --to focus, not of --to perfetto"),
        (["--to", "focus", "--zone", "1"], "--zone is of --to perfetto, not of --to focus"),
        (["--to", "focus", "--parquet"], "--parquet: give a file with -o"),
        (["--to", "focus", "--version", "1.3"], "1.3"),
    ],
)
def test_options_that_do_not_fit_are_named(priced: Path, options: list[str], said: str) -> None:
    done = taut_("export", priced, *options)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_the_published_sample_is_written_to_the_last_decimal(shared: Path, tmp_path: Path) -> None:
    taut_("bill", "--focus", shared / "focus" / "focus_sample.csv", "-q", "-o", tmp_path / "bill")
    taut_("export", tmp_path / "bill", "--to", "focus", "-o", tmp_path / "out.csv")
    once, again = (read_focus(path).table for path in (shared / "focus" / "focus_sample.csv", tmp_path / "out.csv"))
    for cost in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert sum(filter(None, again[cost].to_pylist())) == sum(filter(None, once[cost].to_pylist()))


def test_philly_with_a_price_is_written_as_it_was_booked(shared: Path, tmp_path: Path) -> None:
    log = shared / "philly-restarts" / "jobs.json"
    bill = json.loads(taut_("bill", log, "--gpu-hour", "2.50USD", "--json", "-q", "-o", tmp_path / "bill").stdout)
    taut_("export", tmp_path / "bill", "--to", "focus", "-o", tmp_path / "out.csv")
    found = read_focus(tmp_path / "out.csv")
    assert found.broken == ()
    assert sum(found.table["EffectiveCost"].to_pylist()) == Decimal(bill["accrual"]["ledger"])
    assert len(bill["by"]["job"]) == 3034


def test_what_was_used_without_a_charge_is_told(tmp_path: Path) -> None:
    done = taut_("export", made(tmp_path, "--focus", focus_bill(tmp_path, HOURS[:1]), "--period", "2026-10"), "--to", "focus")
    assert "EUR were used without a charge: not written" in done.stderr.replace("USD", "EUR")


def test_what_a_bill_left_out_is_left_out_of_its_export_again(tmp_path: Path) -> None:
    disk = usage("1.2", ServiceCategory="Storage", ResourceId="disk", ResourceName="disk", SkuId="gb", BilledCost="3.00",
                 EffectiveCost="3.00", ContractedUnitPrice="0.30", ListUnitPrice="0.30")  # fmt: skip
    dear = HOURS[1] | {"BilledCost": "25.00", "EffectiveCost": "25.00"}
    wrong = focus_bill(tmp_path, [HOURS[0], HOURS[0], dear, disk, disk])
    run = made(tmp_path, "--focus", wrong)
    first = json.loads(taut_("bill", tmp_path / "sacct.txt", "--focus", wrong, "--json").stdout)
    told = [(one["kind"], one["money"]) for one in first["defects"]]
    assert told == [("duplicated line", "23.00"), ("price times quantity", "5.00")]
    assert taut_("export", run, "--to", "focus", "-o", tmp_path / "written.csv").exit_code == 0
    again = json.loads(taut_("bill", tmp_path / "sacct.txt", "--focus", tmp_path / "written.csv", "--json").stdout)
    assert (again["accrual"], again["categories"]) == (first["accrual"], first["categories"])
    assert [(one["kind"], one["money"]) for one in again["defects"]] == [("left out before", "28.00")]
