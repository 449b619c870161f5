"""Refusals of the app: the terminal's one line, as JSON, with the status that fits."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from taut.core import memory
from taut.core.errors import TautError, UsageError
from taut.core.json_text import json_text
from taut.result.view_types import Refusal

if TYPE_CHECKING:
    from starlette.responses import Response

JSON = "application/json"
LONGEST = 600
"""Characters of a line."""


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


def refusal(refused: Refused) -> Response:
    """The answer to a request that is refused."""
    from starlette.responses import Response

    line = " ".join(refused.line.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"
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
