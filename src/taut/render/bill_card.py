"""A bill as a card in a notebook: the verdict, and where the money went."""

from __future__ import annotations

from html import escape

from taut.render.card import STYLE
from taut.render.text import money, percent, safe
from taut.result.types import BillResult


def bill_card(result: BillResult) -> str:
    """HTML of a few lines; every text from a bill or a log is escaped."""
    rows = "".join(
        f"<tr><td>{escape(safe(one.name or 'none'))}</td><td>{escape(money(one.money, result.currency))}</td>"
        f"<td>{percent(one.share)}</td></tr>"
        for one in result.categories
    )
    wrong = "".join(
        f'<div style="color:#a60">{escape(safe(one.kind))}: {money(one.money, result.currency)}</div>' for one in result.defects
    )
    return f'<div style="{STYLE}"><b>{escape(safe(result.verdict))}</b><table>{rows}</table>{wrong}</div>'
