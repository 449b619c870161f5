"""A socket that listens, bound before anything is announced; and who reaches it."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from taut.core.errors import UsageError

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def bound(host: str, port: int, other: bool = False, waiting: int = 256, option: str = "--") -> socket.socket:
    """A socket that listens; with ``other`` at any port that is free, where that one is taken.

    ``waiting`` is how many may wait to be let in, ``option`` how the options that say host and port begin.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"{option}host {host}: no address of this machine; give one that `hostname -I` lists") from None
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, else asyncio leaves small packets waiting
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen(waiting)
    except OSError as error:
        made.close()
        if other:
            return bound(host, 0, waiting=waiting)
        why = f"cannot be listened at ({error.strerror}); give another {option}port or {option}host"
        raise UsageError(f"{host}:{port}: {why}") from None
    made.setblocking(False)
    return made
