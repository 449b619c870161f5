"""What the verbs share: a line on stderr, the stage at work, one JSON object on stdout, a screen."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

PATIENCE_S = 5.0
"""Off a terminal, stages are named only after this long."""


def say(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    from taut.brief.text import plain, safe

    line = safe(message)
    encoding = (getattr(sys.stderr, "encoding", None) or "ascii").lower()
    click.echo(line if encoding.startswith("utf") else plain(line), err=True)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Names the stage at work: a spinner on a terminal, a line where it takes long, nothing if quiet."""
    if quiet:
        yield lambda stage: None
    elif sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from rich.console import Console

        with Console(stderr=True).status("reading …") as status:
            yield lambda stage: status.update(f"{stage} …")
    else:
        begin = time.monotonic()
        yield lambda stage: say(f"{stage} …") if time.monotonic() - begin > PATIENCE_S else None


_INVISIBLE = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def print_json(text: str) -> None:
    """One JSON object in UTF-8, with what a terminal might obey written as an escape."""
    click.echo((_INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).rstrip() + "\n").encode(), nl=False)


def print_object(result: Mapping[str, Any]) -> None:
    """A result as one JSON object."""
    import msgspec

    print_json(msgspec.json.format(msgspec.json.encode(result), indent=1).decode())


def show(render: Callable[[Any, Any], str], result: Any) -> None:
    """What a renderer makes of a result, on this screen."""
    from taut.brief.terminal import Screen

    screen = Screen.of(sys.stdout)
    click.echo(render(result, screen), nl=False, color=screen.styled)
