"""What options take: prices, watts, shares, changes; nonsense is refused before anything is read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from taut.core.errors import UsageError
from taut.core.question_words import Delay, delay_words, factor_words, fix_words

T = TypeVar("T")

SIGNS = {"€": "EUR", "$": "USD", "£": "GBP"}
CURRENCIES = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY
    COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR
    IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR
    MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD
    SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD
    XCG XOF XPF YER ZAR ZMW ZWG
"""
"""ISO 4217: the currencies that people are paid in, by their codes."""
AMOUNT = r"(\d{1,12}(?:\.\d{1,12})?)"
"""An amount of money or watts; more digits are no price."""
CURRENCY = r"([A-Za-z]{3}|[€$£])"
MOST_CHANGES = 10_000
MOST_STALENESS = 1024
"""Steps of staleness to search; staler policies may be asked for one by one."""
MOST_SCALES, MOST_RANKS = 100, 10_000_000
"""Numbers of ranks to compute in one call, and the largest."""

TIMES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MOST_TOKENS = 1e18
"""Letters behind a number of tokens; and the most tokens of a training run."""


class Real(click.FloatRange):
    """A number in a range; what is no number (nan) or has no end (inf) lies in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """The number."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number in the range {self._describe_range()}", param, ctx)
        return found


class Target(click.Path):
    """Where to write; an empty name, often a variable that is not set, is no place."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """The path."""
        if not str(value) or "\0" in str(value):
            self.fail(f"{value!r} is no name of a {self.name}", param, ctx)
        return super().convert(value, param, ctx)


force_option = click.option("--force", is_flag=True, help="Replace FILE even if taut did not write it.")


def price(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, str] | None:
    """``2.50EUR`` → amount and currency."""
    if value is None:
        return None
    found = re.fullmatch(rf"{AMOUNT}\s?{CURRENCY}", _sign_last(value), re.ASCII)
    if not found:
        raise click.BadParameter(f"{value!r} is no price: give amount and currency, for example 2.50EUR")
    return found[1], _currency(found[2])


def tokens(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """``15T``, ``300B``, ``1.5e12`` → a number of tokens."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,18}(?:\.\d{1,18})?(?:e\+?\d{1,2})?)\s?([KMBT]?)", value.strip(), re.ASCII | re.IGNORECASE)
    number = float(found[1]) * TIMES[found[2].upper()] if found else 0.0
    if not 1 <= number <= MOST_TOKENS:
        raise click.BadParameter(f"{value!r} is no number of tokens up to {MOST_TOKENS:.0e}: give 15T, 300B or 1.5e12")
    return number


def token_price(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, str, str] | None:
    """``3.00,15.00USD`` → amount in, amount out and currency."""
    if value is None:
        return None
    found = re.fullmatch(rf"{AMOUNT}\s?,\s?{AMOUNT}\s?{CURRENCY}", _sign_last(value), re.ASCII)
    if not found:
        raise click.BadParameter(f"{value!r}: give the price of a million tokens in, then out, for example 3.00,15.00USD")
    return found[1], found[2], _currency(found[3])


def _sign_last(value: str) -> str:
    """``$2.50`` as ``2.50$``."""
    text = value.strip()
    return f"{text[1:].lstrip()}{text[0]}" if text[:1] in SIGNS else text


def _currency(text: str) -> str:
    code = SIGNS.get(text, text.upper())
    if code not in CURRENCIES.split():
        raise click.BadParameter(f"{text!r} is no currency of ISO 4217, for example EUR or USD")
    return code


def watts(_: click.Context, __: click.Parameter, value: str | None) -> list[float] | None:
    """``700,450,120`` → watts under load, stalled and idle."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",", 3)]
    if len(parts) > 3 or not all(re.fullmatch(AMOUNT, part, re.ASCII) for part in parts):
        raise click.BadParameter(f"{value!r}: give one to three numbers of watts, for example 700,450,120")
    return [float(part) for part in parts]


def fixes(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[tuple[str, str]]:
    """``rank=3`` → key and label."""
    return [_parsed(fix_words, value) for value in _not_too_many(values)]


def factors(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[tuple[str, float]]:
    """``work=0.9`` → what is scaled, and its factor."""
    found = [_parsed(factor_words, value) for value in _not_too_many(values)]
    twice = next((key for key, _ in found if [one for one, _ in found].count(key) > 1), None)
    if twice is not None:
        raise click.BadParameter(f"{twice} is given twice: factors of one thing are one factor")
    return found


def delays(_: click.Context, __: click.Parameter, values: Sequence[str]) -> list[Delay]:
    """``rank=3,step=10,ms=40`` → rank, step and nanoseconds; ``op=N`` behind it names the op."""
    return [_parsed(delay_words, value) for value in _not_too_many(values)]


def _parsed(read: Callable[[str], T], value: str) -> T:
    """What an option says; what it cannot say is a wrong value of it."""
    try:
        return read(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _not_too_many(values: Sequence[str]) -> Sequence[str]:
    if len(values) > MOST_CHANGES:
        raise click.BadParameter(f"given {len(values):,} times; at most {MOST_CHANGES:,} changes at a time")
    return values


def scales(_: click.Context, __: click.Parameter, value: str | None) -> list[int]:
    """``64,128,4096`` → numbers of ranks."""
    if value is None:
        return []
    parts = value.split(",", MOST_SCALES)
    if len(parts) > MOST_SCALES:
        raise click.BadParameter(f"more than {MOST_SCALES} numbers; ask for fewer at a time")
    if not all(re.fullmatch(r"\s*\d{1,18}\s*", part, re.ASCII) for part in parts):
        raise click.BadParameter(f"{value!r}: give whole numbers, 1024,4096")
    found = [int(part) for part in parts]
    if not 1 <= min(found) <= max(found) <= MOST_RANKS:
        raise click.BadParameter(f"{value!r}: give numbers of ranks from 1 to {MOST_RANKS:,}")
    return found


def place(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """``local`` or ``dask://HOST:PORT``."""
    if value is not None:
        from taut.core.executors import checked

        checked(value)
    return value


on_option = click.option(
    "--on",
    metavar="WHERE",
    callback=place,
    help="Where work runs side by side: local, all cores of this machine, or dask://HOST:PORT, the workers of a Dask cluster.",
)

markdown_option = click.option("--markdown", is_flag=True, help="Print the result as Markdown, for the summary of a CI job.")


def check_form(as_json: bool, markdown: bool) -> None:
    """Refuse two forms at once."""
    if as_json and markdown:
        raise UsageError("--json and --markdown: give one of them")
