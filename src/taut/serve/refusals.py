"""Refusals of the app: the terminal's one line, as JSON or as a page, with the status that fits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING

import msgspec

from taut.core import memory
from taut.core.errors import TautError, UsageError
from taut.core.json_text import json_text
from taut.result.view_types import Refusal

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

JSON = "application/json"
LONGEST = 600
"""Characters of a line."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>taut</title>
</head>
<body><main><h1>taut</h1><p>{sentence}</p></main></body>
</html>
"""
SENTENCES = {
    401: "This browser has no token: open the address that taut serve printed again.",
    404: 'Nothing is at this address; <a href="/">all runs are here</a>.',
}
"""What a page says where its line would not help a reader; HTML."""


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, line: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(line)
        self.status, self.line, self.headers = status, line, dict(headers or {})


def encoded(answer: object) -> bytes:
    """JSON; a name that is no text (half a character) is written as its escape."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return json_text(answer).encode()


def wants_page(scope: Scope) -> bool:
    """Whether a browser opens an address: it asks for HTML, and not at an address of the API."""
    asks = any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])
    return asks and scope["method"] == "GET" and not scope["path"].startswith(("/api/", "/static/"))


def refusal(refused: Refused, scope: Scope) -> Response:
    """The answer to a request that is refused."""
    from starlette.responses import HTMLResponse, Response

    line = " ".join(refused.line.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
    if wants_page(scope):
        sentence = SENTENCES.get(refused.status, escape(line))
        return HTMLResponse(PAGE.format(sentence=sentence).encode("utf-8", "replace"), refused.status, refused.headers)
    return Response(encoded(Refusal(error=line)), refused.status, refused.headers, JSON)


def refused_of(error: Exception, say: Callable[[str], None]) -> Refused:
    """What an error of the library is to a client: 400 where the question does not fit, 409 where the run cannot answer it.

    What nobody foresaw is told to whoever started the server, too.
    """
    if isinstance(error, Refused):
        return error
    if isinstance(error, TautError):
        return Refused(400 if isinstance(error, UsageError) else 409, str(error))
    if memory.is_short(error):
        say(f"taut: not enough memory ({error})")
        return Refused(503, "not enough memory for this run; end other jobs, or serve it on a larger machine")
    if isinstance(error, OSError):
        return Refused(409, f"cannot be read ({error.strerror or type(error).__name__})")
    if os.environ.get("TAUT_DEBUG"):
        raise error
    say(f"taut: {type(error).__name__}: {error} (TAUT_DEBUG=1 shows the traceback)")
    return Refused(500, f"{type(error).__name__}: this is a mistake of taut's; its terminal says more")
