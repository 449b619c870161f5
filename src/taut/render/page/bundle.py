"""The shell of the app, its static files, and the same pages as one file with its data inside.

In the app every script comes from the server itself. In a file they stand inline, each allowed by its digest; data stand in
blocks that nothing executes.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from taut.core.errors import TautError
from taut.render.text import money, percent, safe
from taut.result.view_types import Overview

if TYPE_CHECKING:
    from jinja2 import Template

MISSING = "pages need {}, which is not installed: pip install 'taut[brief]'"
VIEWS = (
    "canvas.js", "runs.js", "overview.js", "timeline.js", "structure.js", "whatif.js", "scaling.js", "control.js", "bill.js",
    "decisions.js",
)  # fmt: skip
SCRIPTS = ("core.js", "source_app.js", *VIEWS, "live.js", "main.js")
"""Scripts of the app, in the order in which they run."""
FILE_SCRIPTS = ("core.js", "packed_timeline.js", "source_file.js", *VIEWS, "main.js")
"""Scripts of a file; there is no list of runs in it, but a page of one may be."""
STYLES = ("page.css", "canvas.css")
STATIC = {
    **dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8"),
    "vega.js": "text/javascript; charset=utf-8",
    **dict.fromkeys(STYLES, "text/css; charset=utf-8"),
    "icon.svg": "image/svg+xml",
}
"""Static files by name, with their content types: nothing else is served."""


class Block(Struct, frozen=True):
    """Data inside a file: JSON as it is, anything else in base64."""

    name: str
    type: str
    text: str


def static(name: str) -> tuple[bytes, str]:
    """A static file and its content type; raises ``KeyError`` for all that is not on the list."""
    kind = STATIC[name]
    return (vega() if name == "vega.js" else _text(name).encode()), kind


def shell(title: str) -> str:
    """The HTML of every page of the app: no script, style or data of its own."""
    return _template().render(
        title=title, policy=None, home="/", names=SCRIPTS, styles=STYLES, blocks=(), scripts=(), plain=None
    )


def file(title: str, packed: Mapping[str, bytes], plain: Overview | None = None) -> str:
    """One HTML file with everything inside; ``packed`` is what its source answers from: ``*.json`` and bytes, by name.

    ``plain`` is told in words to whoever runs no scripts.
    """
    style = "".join(map(_text, STYLES))
    scripts = [_closed(text) for text in (vega().decode(), *map(_text, FILE_SCRIPTS))]
    icon = "data:image/svg+xml," + quote(_text("icon.svg").strip())
    return _template().render(
        title=safe(title),
        policy=_policy(style, scripts),
        home="#/",
        plain=plain,
        icon=_markup(icon),
        style=_markup(style),
        blocks=[_block(name, data) for name, data in packed.items()],
        scripts=[_markup(text) for text in scripts],
    )


@cache
def vega() -> bytes:
    """Vega, Vega-Lite and Vega-Embed as one script that leaves nothing but ``vegaEmbed`` behind."""
    try:
        from vl_convert import javascript_bundle
    except ImportError:
        raise TautError(MISSING.format("vl-convert-python")) from None
    return f"(() => {{\n{javascript_bundle('window.vegaEmbed = vegaEmbed;')}\n}})();\n".encode()


def digest(text: str) -> str:
    """What a policy calls an inline script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _policy(style: str, scripts: Sequence[str]) -> str:
    allowed = " ".join(digest(text) for text in scripts)
    inside = f"default-src 'none'; script-src {allowed}; style-src {digest(style)}"
    return f"{inside}; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _block(name: str, data: bytes) -> Block:
    """A block that no parser of HTML leaves early: ``<`` occurs in JSON within strings only."""
    if name.endswith(".json"):
        return Block(name, "application/json", _markup(data.decode().replace("<", "\\u003c")))
    return Block(name, "text/plain", b64encode(data).decode())


def _closed(script: str) -> str:
    """A script in which no parser of HTML sees an end or a comment."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise TautError(MISSING.format("jinja2")) from None
    ours = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    ours.filters.update(safe_text=safe, percent=percent, money=money)
    return ours.from_string(_text("page.html.j2"))


@cache
def _text(name: str) -> str:
    folder = files("taut.render.page")
    return folder.joinpath("js", name).read_text("utf-8") if name.endswith(".js") else folder.joinpath(name).read_text("utf-8")


def _markup(text: str) -> str:
    """What is HTML already, and ours."""
    from markupsafe import Markup

    return Markup(text)
