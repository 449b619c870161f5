"""One address on the web, of which JSON is asked and nothing is believed.

Only http and https, certificates checked, no redirect followed, no proxy of the environment used, no more bytes and no more
seconds than the caps, counted while they flow. A token is taken from the environment and sent to that one address only,
over plain http only within this machine.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

import msgspec

from taut.core.errors import InputRefused, TooLarge

TOKEN = "TAUT_METRICS_TOKEN"
"""Environment variable with the bearer token."""
# Most bytes of one answer, and of all.
ANSWER_BYTES, TOTAL_BYTES = 64 << 20, 512 << 20
# Most seconds for one answer, and for all.
ANSWER_S, TOTAL_S = 30.0, 300.0
CHUNK = 64 << 10
TRY = "give the address of a Prometheus, such as http://host:9090"


@dataclass
class Server:
    """One address, and what may still be asked of it."""

    name: str
    secure: bool
    host: str
    port: int | None
    path: str
    token: str
    bytes_left: int = field(default_factory=lambda: TOTAL_BYTES)
    until: float = field(default_factory=lambda: time.monotonic() + TOTAL_S)

    @classmethod
    def at(cls, url: str) -> Server:
        """The server of an address; refuses one that is none, or that would give a secret away."""
        try:
            parts = urlsplit(url)
            port, host = parts.port, parts.hostname or ""
        except ValueError:
            raise InputRefused(ascii(url[:200]), "not an address", TRY) from None
        if "@" in parts.netloc:
            raise InputRefused(f"{parts.scheme}://…@{host}", "a password in the address", f"put a token into {TOKEN}")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not url.isprintable():
            raise InputRefused(ascii(url[:200]), "not an address taut reads metrics from", TRY)
        name = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        token = os.environ.get(TOKEN, "").strip()
        if token and not re.fullmatch(r"[\x21-\x7e]+", token):
            raise InputRefused(name, f"{TOKEN} holds what no token may", "set it to the bearer token alone")
        if token and parts.scheme == "http" and not _here(host):
            raise InputRefused(name, f"{TOKEN} would be sent in clear", f"use https, or unset {TOKEN}")
        return cls(name, parts.scheme == "https", host, port, parts.path.rstrip("/"), token)

    def get(self, path: str, asked: Mapping[str, str]) -> bytes:
        """The JSON of one answer; refuses any other."""
        try:
            with self._connected() as connection:
                connection.request("GET", f"{self.path}{path}?{urlencode(asked)}", headers=self._headers())
                with connection.getresponse() as response:  # closed also where it is not read to its end
                    body = self._body(response)
        except ssl.SSLCertVerificationError as error:
            remedy = "SSL_CERT_FILE names the file of an authority that you trust"
            raise InputRefused(self.name, f"its certificate is not trusted ({error.verify_message})", remedy) from None
        except TimeoutError:
            why = f"no whole answer within {ANSWER_S:g} s, or not all within {TOTAL_S:g} s"
            raise InputRefused(self.name, why, "ask when it is less busy, or give the metrics as a file") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise InputRefused(
                self.name, f"cannot be asked: {why}", "check that it runs and can be reached from here"
            ) from None
        self._refuse(response, body)
        return body

    @contextmanager
    def _connected(self) -> Iterator[http.client.HTTPConnection]:
        """A connection that is cut when its time is over, wherever it is stuck; then TimeoutError."""
        seconds = max(min(ANSWER_S, self.until - time.monotonic()), 0.001)
        if self.secure:
            context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self.host, self.port, timeout=seconds, context=context
            )
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        with connected(connection, seconds):
            yield connection

    def _headers(self) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "application/json", "User-Agent": "taut", "Connection": "close", **bearer}

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        cap = min(ANSWER_BYTES, self.bytes_left)
        body = bytearray()
        while chunk := response.read1(CHUNK):
            body += chunk
            if len(body) > cap:
                why = f"answers more than {cap / 2**20:,.3g} MiB"
                raise TooLarge(self.name, why, "name the label of the job's hosts: --map 'Hostname,gpu→rank'")
        self.bytes_left -= len(body)
        return bytes(body)

    def _refuse(self, response: http.client.HTTPResponse, body: bytes) -> None:
        """Refuses every answer but a good one in JSON."""
        status = response.status
        kind = response.headers.get_content_type() if response.headers.get("Content-Type") else "application/json"
        if 300 <= status < 400:
            elsewhere = (response.headers.get("Location") or "elsewhere")[:200]
            raise InputRefused(self.name, f"sends on to {elsewhere}", "taut follows nobody: give that address if you trust it")
        if status in (401, 403):
            why = "the token was not accepted" if self.token else "no token was sent"
            raise InputRefused(self.name, f"refuses access ({status}): {why}", f"set {TOKEN}")
        if status != 200:
            raise InputRefused(self.name, f"answers {status}{_error(body)}", TRY if status == 404 else "ask its keeper")
        if not kind.endswith("json"):
            raise InputRefused(self.name, f"answers {kind[:60]} instead of JSON", TRY)


@contextmanager
def connected(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """Connect, and cut the connection when its time is over, wherever it is stuck; then TimeoutError."""
    over = threading.Event()
    try:
        connection.connect()
        timer = threading.Timer(seconds, _cut, (over, connection.sock))
        timer.daemon = True
        timer.start()
        try:
            yield
        except (OSError, http.client.HTTPException):
            if not over.is_set():
                raise
        finally:
            timer.cancel()
        if over.is_set():
            raise TimeoutError
    finally:
        connection.close()


class _Error(msgspec.Struct):
    error: str = ""


def _error(body: bytes) -> str:
    try:
        text = msgspec.json.decode(body, type=_Error).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ""
    return f" ({text[:120]})" if text else ""


def _here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cut(cut: threading.Event, its: socket.socket) -> None:
    """End a conversation that lasts too long, wherever it is stuck."""
    cut.set()
    with suppress(OSError):
        socket.socket.shutdown(its, socket.SHUT_RDWR)
