"""``taut serve``: run folders in a browser."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.cli.audit_verb import where_option
from taut.cli.common import say
from taut.cli.recording import PLACE
from taut.core.errors import TautError, UsageError

if TYPE_CHECKING:
    from taut.serve.guard import Door

PORT = 8321
FOLDER = "taut-runs"
LEAST_TOKEN = 16
MISSING = "taut serve needs {}, which is not installed: pip install 'taut[serve]'"
NEEDED = ("starlette", "uvicorn", "jinja2", "vl_convert")


@click.command(short_help="Show run folders in a browser.")
@click.argument("folders", metavar="[FOLDER|RUN]...", nargs=-1, type=click.Path())
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), help=f"Port  [default: {PORT}, or any that is free]")
@click.option("--host", metavar="H", default="127.0.0.1", show_default=True, help="Address; beyond this machine needs --token.")
@click.option(
    "--token",
    metavar="T",
    envvar="TAUT_SERVE_TOKEN",
    help=f"What lets a browser in, at least {LEAST_TOKEN} characters; TAUT_SERVE_TOKEN will do  [default: drawn]",
)
@click.option("--no-open", is_flag=True, help="Open no browser.")
@where_option
def serve(folders: tuple[str, ...], port: int | None, host: str, token: str | None, no_open: bool) -> None:
    """Show runs in a browser: who waited for whom, when, what it costs, and what would change it.

    FOLDER holds run folders (of taut analyze, control or bill), RUN is one; new runs appear by themselves. Nothing else is
    read, and nothing is changed but the audit log, by decisions. The address that is printed holds a token: who has it may
    read these runs. Ctrl-C ends it. Needs the extra: pip install 'taut[serve]'.

    \b
      taut serve
      taut serve taut-runs/job-1a2b3c4d --no-open
      TAUT_SERVE_TOKEN=… taut serve /data/runs --host 0.0.0.0 --port 8321
    """
    _check_installed()
    from taut.serve.app import make_app
    from taut.serve.catalogue import Catalogue
    from taut.serve.listening import bound, is_loopback
    from taut.serve.opened import OpenRuns, warm_up
    from taut.serve.routes import House
    from taut.serve.server import serve as answer
    from taut.serve.static_files import prepare

    roots = _roots(folders)
    if token is not None and len(token) < LEAST_TOKEN:
        raise UsageError(f"--token: give at least {LEAST_TOKEN} characters")
    if token is None and not is_loopback(host):
        raise UsageError(f"--host {host}: others could reach it; give --token, at least {LEAST_TOKEN} characters")
    listening = bound(host, PORT if port is None else port, other=port is None)
    door = _door(host, listening.getsockname()[1], token)
    address = _address(host, door)
    say(f"serving {', '.join(roots[:3])}{' …' if len(roots) > 3 else ''} at {address} (Ctrl-C ends it)")
    if not no_open and _has_display():
        _open(address)
    prepare()
    threading.Thread(target=warm_up, daemon=True).start()
    given = click.get_current_context().meta.get(PLACE)
    house = House(OpenRuns(Catalogue(roots)), None if given is None else Path(str(given)))
    answer(make_app(house, door, say), listening)


def _check_installed() -> None:
    from importlib.util import find_spec

    lacking = next((name for name in NEEDED if find_spec(name) is None), None)
    if lacking is not None:
        raise TautError(MISSING.format(lacking.replace("_", "-")))


def _roots(folders: Sequence[str]) -> list[str]:
    if not folders and not Path(FOLDER).is_dir():
        raise UsageError(f"{FOLDER}: there is no such folder here; give a FOLDER of runs, or make a run: taut demo")
    roots = list(dict.fromkeys(folders)) or [FOLDER]
    lacking = next((root for root in roots if not Path(root).is_dir()), None)
    if lacking is not None:
        raise UsageError(f"{lacking}: is no folder; give folders of runs, or run folders")
    return roots


def _door(host: str, port: int, token: str | None) -> Door:
    import secrets
    import socket

    from taut.serve.guard import Door
    from taut.serve.listening import LOOPBACK, is_loopback

    everywhere = host in ("0.0.0.0", "::", "")
    own = () if is_loopback(host) else (socket.gethostname().lower(), socket.getfqdn().lower())
    names = frozenset((*LOOPBACK, host.lower(), *own)) if everywhere or is_loopback(host) else frozenset((host.lower(), *own))
    return Door(token or secrets.token_urlsafe(24), names, everywhere, port)


def _address(host: str, door: Door) -> str:
    from urllib.parse import quote

    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    named = f"[{shown}]" if ":" in shown else shown
    return f"http://{named}:{door.port}/?token={quote(door.token, safe='')}"


def _has_display() -> bool:
    """Whether a browser that is opened here is seen by whoever asked for it."""
    if os.environ.get("SSH_CONNECTION") or not sys.stderr.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(address: str) -> None:
    """Open the browser from a thread of its own: some are waited for until they are closed."""
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
