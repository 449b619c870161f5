"""prices.toml: the page's example is read whole; what is wrong is refused with its line; hours hold as long as they hold."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from taut.core.errors import InputRefused
from taut.core.prices import Prices
from taut.read import hourly_file
from taut.read.prices_file import PricesFile, load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "bill-prices.md"
HOUR = 3_600_000_000_000


def written(folder: Path, text: str, **files: str) -> Prices:
    for name, content in files.items():
        (folder / f"{name}.csv").write_text(content)
    (folder / "prices.toml").write_text(text)
    return load(folder / "prices.toml")


def example(folder: Path) -> Prices:
    found = re.search(r"^```toml prices\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found
    return written(
        folder, found[1],
        tariff="time,per_kwh\n2026-10-01T00:00,0.20\n2026-10-01T01:00,0.30\n",
        carbon="time,g_per_kwh\n2026-10-01T00:00Z,300\n2026-10-01T01:00Z,\n",
        outside="time,temperature_c\n2026-10-01T00:00Z,-10\n",
        hosts="resource,host,accelerators,model\ni-1,gpu-1,8,H200\n,gpu-2,4,\n",
    )  # fmt: skip


def test_the_example_of_the_page_has_every_key_and_is_read(tmp_path: Path) -> None:
    prices = example(tmp_path)
    assert (prices.gpu_hour, prices.currency, prices.load_w, prices.kg_co2e_per_kwh) == (Decimal("2.50"), "EUR", 680, 0.35)
    assert [rate.gpu_hour for rate in prices.rates] == [Decimal("1.90"), Decimal("0.95"), None]
    assert prices.owned is not None
    assert round(prices.owned.gpu_hour, 4) == Decimal("1.0388")
    assert prices.tariff is not None
    assert prices.tariff.start_ns[0] == 1_790_805_600_000_000_000  # midnight in Berlin is 22:00 UTC
    assert prices.carbon is not None
    assert prices.carbon.value == (0.3,)
    assert prices.hosts.resources == {"i-1": "gpu-1", "i-0a1b2c3d": "gpu-17"}
    assert prices.hosts.accelerators_of == {"gpu-1": 8, "gpu-2": 4, "gpu-17": 4}
    assert prices.missing() == []
    text = PAGE.read_text(encoding="utf-8")
    assert [key for key in PricesFile.__struct_fields__ if not re.search(rf"^(\[+{key}\b|{key} =)", text, re.M)] == []


def test_nothing_is_zero_because_it_was_left_out(tmp_path: Path) -> None:
    prices = written(tmp_path, 'currency = "EUR"\n')
    assert prices == Prices(currency="EUR", origin="prices.toml")
    assert len(prices.missing()) == 12
    assert prices.base_rate is None


def test_money_never_passes_through_binary_floats(tmp_path: Path) -> None:
    assert written(tmp_path, 'currency = "EUR"\ngpu_hour = 0.10000000000000001\n').gpu_hour == Decimal("0.10000000000000001")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('currency = "EUR"\n[electricty]\nper_kwh = 1\n', "prices.toml:2: no such key: electricty; did you mean electricity?"),
        ('currency = "EUR"\n[power]\nload = 1\n', "prices.toml:3: no such key: power.load; did you mean load_w?"),
        ("gpu_hour = 2\n", 'prices.toml:1: gpu_hour: money without a currency; give currency = "EUR"'),
        ('currency = "EUR"\ngpu_hour = "2.5EUR"\n', "prices.toml:2: gpu_hour: invalid decimal"),
        ('currency = "EUR"\ngpu_hour = -2\n', "prices.toml:2: gpu_hour: -2 is no price"),
        ('currency = "EUR"\ngpu_hour = nan\n', "prices.toml:2: gpu_hour: NaN is no price"),
        ('currency = "euro"\n', "prices.toml:1: currency: 'euro' is no code"),
        ('currency = "EUR"\n[[rate]]\nkind = "spot"\n', "a rate without a price"),
        ('currency = "EUR"\n[[rate]]\ngpu_hour = 1\nfrom = "soon"\n', "prices.toml:4: rate.from: 'soon' is no date"),
        ('[electricity]\ntariff = "../other.csv"\n', "does not lie beside the prices"),
        ('[electricity]\ntariff = "tariff.csv"\nzone = "Mars/Olympus"\n', "no time zone 'Mars/Olympus' is known"),
        ("[cooling]\ncurve = [[1, 1.1], [2, 1.2]]\n", "one without the other"),
        ("[cooling]\npue = 0.5\n", "prices.toml:2: cooling.pue"),
        ("[carbon]\nembodied_kg = 3\n", "needs the years"),
        ("[[fix]]\n", "fix[0].kind is missing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_one_line_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputRefused) as refused:
        written(tmp_path, text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_row_holds_up_to_the_next_and_no_longer_than_rows_usually_do(tmp_path: Path) -> None:
    rows = "".join(f"2026-10-01T{hour:02}:00Z,{hour}\n" for hour in (0, 1, 2, 5, 6))
    (tmp_path / "t.csv").write_text("time,per_kwh\n" + rows)
    found = hourly_file.load(tmp_path / "t.csv", hourly_file.TARIFF)
    first = found.start_ns[0]
    assert [(one - first) // HOUR for one in found.end_ns] == [1, 2, 3, 6, 7]  # from 3 to 5 nobody knows


def test_the_hour_that_clocks_show_twice_is_two_hours(tmp_path: Path) -> None:
    rows = "".join(f"2026-10-25 {hour:02}:00,{hour}\n" for hour in (0, 1, 2, 2, 3))
    (tmp_path / "t.csv").write_text("time,per_kwh\n" + rows)
    found = hourly_file.load(tmp_path / "t.csv", hourly_file.TARIFF, ZoneInfo("Europe/Berlin"))
    assert [(one - found.start_ns[0]) // HOUR for one in found.start_ns] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,per_kwh\n2026-10-01,1\n2026-10-01,2\n", "two values for"),
        ("time,per_kwh\n2026-10-01,cheap\n", "t.csv:2: 'cheap' is no number"),
        ("time,per_kwh\nyesterday,1\n", "t.csv:2: 'yesterday' is no date"),
        ("when,per_kwh\n2026-10-01,1\n", "no column for time"),
        ("time,cost\n2026-10-01,1\n", "no column for the value"),
        ("time,per_kwh\n", "no row holds"),
    ],
)
def test_a_file_by_the_hour_that_cannot_be_used_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputRefused) as refused:
        hourly_file.load(tmp_path / "t.csv", hourly_file.TARIFF)
    assert says in str(refused.value)
