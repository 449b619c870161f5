"""A document as one HTML file: no script, nothing from elsewhere, readable in the dark, on paper and by ear."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from taut.core.errors import TautError
from taut.render.brief.canvas import FULL, HALF, MISSING, themed
from taut.render.brief.chart_data import table_of
from taut.render.brief.charts import svg
from taut.render.brief.cleaning import cleaned
from taut.render.brief.document import Block, Cell, Chart, Document

if TYPE_CHECKING:
    from jinja2 import Template

LONGEST = 20
"""Longer words may be broken: behind a slash, a comma, an underscore or such, else every 13 characters."""
_PART = re.compile("[^/,_=:]{0,26}[/,_=:]+|[^/,_=:]{1,13}", re.DOTALL)


def render_html(document: Document) -> str:
    """The whole file."""
    template, style = _template(), _text("brief.css")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    given = {"kind": _kind, "cell": _cell, "table_of": table_of, "picture": _picture}
    return template.render(document=cleaned(document), style=_markup(style), policy=policy, **given) + "\n"


def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise TautError(MISSING.format("jinja2")) from None
    ours = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    ours.filters["words"] = _words
    return ours.from_string(_text("brief.html.j2"))


def _text(name: str) -> str:
    return files("taut.render.brief").joinpath(name).read_text("utf-8")


def _markup(text: str) -> str:
    """What is HTML already: ours, or drawn by the library from texts that it escapes."""
    from markupsafe import Markup

    return Markup(text)


def _words(text: str) -> str:
    """The text, its longest words with places to break them: a digest must not widen a table, nor short words be torn."""
    from markupsafe import escape

    parts = [_PART.findall(word) if len(word) > LONGEST else [word] for word in text.split(" ")]
    return _markup(" ".join("<wbr>".join(str(escape(part)) for part in word) for word in parts))


def _kind(block: Block) -> str:
    return type(block).__name__


def _cell(cell: Cell | str) -> Cell:
    return Cell(cell) if isinstance(cell, str) else cell


def _picture(chart: Chart, alt: str, half: bool) -> str:
    """The drawing with its words as attributes of the drawing itself."""
    from markupsafe import escape

    drawing = themed(svg(chart, HALF if half else FULL))
    return _markup(drawing.replace("<svg ", f'<svg role="img" aria-label="{escape(alt)}" ', 1))
