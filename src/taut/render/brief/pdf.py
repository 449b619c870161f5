"""A document as PDF: set by typst, which takes every text as data and none as markup."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from msgspec import convert, json, to_builtins

from taut.core.errors import TautError
from taut.render.brief.canvas import FULL, HALF, MISSING
from taut.render.brief.charts import svg
from taut.render.brief.cleaning import cleaned
from taut.render.brief.document import Chart, Document

if TYPE_CHECKING:
    from taut.core.array_types import Json


def render_pdf(document: Document) -> bytes:
    """The whole file: tagged as PDF/UA-1 asks, with bookmarks, text that can be searched, and no date."""
    try:
        import typst
    except ImportError:
        raise TautError(MISSING.format("typst")) from None
    given = json.encode(_pictured(to_builtins(cleaned(document)), False)).decode()
    template = files("taut.render.brief").joinpath("brief.typ").read_bytes()
    try:
        return typst.compile(template, sys_inputs={"document": given}, ignore_system_fonts=True, pdf_standards=["ua-1"])
    except typst.TypstError:  # a letter that typst's own fonts lack: the machine's may have it, and the standard wants all
        return typst.compile(template, sys_inputs={"document": given})


def _pictured(value: Json, half: bool) -> Json:
    """The same with every chart drawn."""
    if isinstance(value, dict):
        half = half or value.get("type") == "Sides"
        drawn = {key: _pictured(each, half) for key, each in value.items() if key != "chart"}
        return {**drawn, "svg": svg(convert(value["chart"], Chart), HALF if half else FULL)} if "chart" in value else drawn
    if isinstance(value, (list, tuple)):
        return [_pictured(each, half) for each in value]
    return value
