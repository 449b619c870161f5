"""Values as people read them."""

from __future__ import annotations

import pytest

from taut.render.text import count, duration, money, percent, plain, safe, size, span


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        (0, "0 ns"),
        (812, "812 ns"),
        (1_000, "1.00 µs"),
        (20_740, "20.7 µs"),
        (999_600, "1.00 ms"),
        (301_300_000, "301 ms"),
        (1_807_933_918, "1.81 s"),
        (-36_400_000, "-36.4 ms"),
        (100 * 10**9, "100 s"),
        (2_052 * 10**9, "34.2 min"),
        (32_841 * 10**9, "9.12 h"),
    ],
)
def test_duration(ns: int, shown: str) -> None:
    assert duration(ns) == shown


@pytest.mark.parametrize(("share", "shown"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.0006, "0.1 %"), (1, "100.0 %")])
def test_percent(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("22.811111", "22.81 EUR"),
        ("1234.5", "1,234.50 EUR"),
        ("0.065", "0.065 EUR"),
        ("0.000123", "0.00012 EUR"),
        ("0", "0.00 EUR"),
    ],
)
def test_money(amount: str, shown: str) -> None:
    assert money(amount, "EUR") == shown


@pytest.mark.parametrize(("n", "shown"), [(None, ""), (4, "4 B"), (263_168, "263 kB"), (25_000_000, "25.0 MB")])
def test_size(n: int | None, shown: str) -> None:
    assert size(n) == shown


def test_safe_shows_what_a_terminal_would_obey() -> None:
    assert safe("a\x1b[2J\r\n\x07\x9b\u202e\u200b\ud800b") == r"a\x1b[2J\r\n\x07\x9b\u202e\u200b\ud800b"
    assert safe("Ångström 日本 é") == "Ångström 日本 é"


def test_plain_keeps_the_width_of_what_taut_writes() -> None:
    text = "7–12 · 20 µs −3 %…"
    assert plain(text) == "7-12 | 20 us -3 %~"
    assert len(plain(text)) == len(text)


def test_words_for_counts_and_ranges() -> None:
    assert (count(1, "rank"), count(4096, "rank")) == ("1 rank", "4,096 ranks")
    assert (span(3, 3), span(3, 9)) == ("step 3", "steps 3–9")
