"""What stands before every route: who may ask, from where, and what every answer says to a browser.

A request passes if its Host is a name of this server, if no other site sent it, and if it carries the token: once as
``?token=`` of a page, then as a cookie, or as a bearer. All else is refused here, before anything is looked up.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import parse_qsl

from taut.serve.refusals import Refused, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 64 << 10
"""Bytes of a request's body: a decision is a few sentences."""
MOST_HEAD = 16 << 10
"""Bytes of its headers."""
PIECE = 64 << 10
"""Bytes of an answer that are handed to the connection at a time: a client that does not read holds no more of it."""
NONCE_BYTES = 32
"""Random bytes of a server process that its cookies depend on: as many as SHA-256 gives."""
METHODS = ("GET", "POST")
OPENS = re.compile(r"/(run/[0-9a-f]{1,64}/[a-z]{1,16})?")
"""Pages that may be opened with the token in the address."""
QUERY = re.compile(rb"[!-~]*")
ONCE = frozenset((b"host", b"origin", b"sec-fetch-site", b"content-type", b"content-length", b"authorization"))
"""Headers that are looked at: given twice, each half of a chain may see another one."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAID = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin-allow-popups",  # a page that we open (Perfetto) may answer; who opens us may not
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
"""What every answer says."""
NO_STORE = (b"cache-control", b"no-store")
Pairs: TypeAlias = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Door:
    """Who may come in: the names of this server, and its token."""

    token: str = field(repr=False)
    names: frozenset[str] = frozenset(("localhost", "127.0.0.1", "::1"))
    """Hosts that a browser may have in its address bar, in small letters."""
    any_address: bool = False
    """Whether any number is a name of it: bound to all addresses. A number needs no DNS, so nobody can rebind it."""
    port: int = 0
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(NONCE_BYTES), repr=False)
    """Drawn anew by every server process, so that no cookie outlives it, even where the token is fixed."""

    @property
    def cookie(self) -> str:
        """Name of the cookie: browsers send the cookies of all ports of a host."""
        return f"taut-{self.port}"

    @cached_property
    def pass_word(self) -> str:
        """What the cookie holds: made from the token and the nonce, and neither of them."""
        return hmac.new(self.token.encode(), b"taut serve: cookie" + self.nonce, sha256).hexdigest()

    def knows(self, host: str) -> bool:
        """Whether a Host header names this server."""
        name = host_name(host)
        return name is not None and (name in self.names or (self.any_address and _is_address(name)))


def host_name(host: str) -> str | None:
    """The name in ``name:port`` or ``[::1]:port``; None where it is neither."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9A-Za-z.-]{1,253}))(?::[0-9]{1,5})?", host)
    return None if found is None else (found[1] or found[2]).lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """The app behind the door."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app, self._door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        if scope["type"] != "http":
            return
        said = _saying(send)
        try:
            moved = self._admitted(scope)
            if moved is not None:
                await self._move(said, moved)
                return
            await self._app(scope, _capped(receive), said)
        except Refused as refused:
            await refusal(refused, scope)(scope, receive, said)

    def _admitted(self, scope: Scope) -> str | None:
        """Refuse, or return where a browser is sent that came with the token in its address; None where it may go on."""
        headers = _headers(scope["headers"])
        host = headers.get("host", "")
        if not self._door.knows(host):
            raise Refused(403, "this server has another name: open the address that taut serve printed")
        _check_site(scope["method"], host, headers)
        moved = self._shown(scope, headers)
        _check_form(scope["method"], headers)
        return moved

    def _shown(self, scope: Scope, headers: Mapping[str, str]) -> str | None:
        """Refuse who does not show the token."""
        given = _query_token(scope)
        if given is not None:
            if not same(given, self._door.token):
                raise Refused(403, "wrong token: open the address that taut serve printed last")
            return _without_token(scope)
        bearer = headers.get("authorization", "")
        kept = _cookie(headers.get("cookie", ""), self._door.cookie)
        if bearer.startswith("Bearer ") and same(bearer.removeprefix("Bearer "), self._door.token):
            return None
        if not bearer and kept is not None and same(kept, self._door.pass_word):
            return None
        raise Refused(401, "no token: open the address that taut serve printed")

    async def _move(self, send: Send, where: str) -> None:
        """Keep the token as a cookie, and have the browser forget its address."""
        cookie = f"{self._door.cookie}={self._door.pass_word}; Path=/; HttpOnly; SameSite=Strict"
        headers = [(b"location", where.encode("ascii")), (b"set-cookie", cookie.encode("ascii")), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _headers(pairs: Pairs) -> dict[str, str]:
    """Headers by name; refused where one that matters is given twice."""
    if sum(len(name) + len(value) for name, value in pairs) > MOST_HEAD:
        raise Refused(431, f"headers of more than {MOST_HEAD:,} bytes", {"connection": "close"})
    out: dict[str, str] = {}
    for name, value in pairs:
        key = name.decode("latin-1").lower()
        if key.encode("latin-1") in ONCE and key in out:
            raise Refused(400, f"two headers {key}: give one")
        out[key] = f"{out[key]}; {value.decode('latin-1')}" if key in out else value.decode("latin-1")
    return out


def _check_site(method: str, host: str, headers: Mapping[str, str]) -> None:
    """Refuse what another site sent, which a browser tells by Sec-Fetch-Site, an older one by Origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    ours = origin is not None and origin.lower() == f"http://{host.lower()}"
    if (site is not None and site not in ("same-origin", "none")) or (origin is not None and not ours):
        raise Refused(403, "asked from another site: copy the address into the browser's address bar")
    if method == "POST" and not (ours and site in (None, "same-origin")):
        raise Refused(403, "a decision is taken only from a page of this server, or with its Origin")


def _check_form(method: str, headers: Mapping[str, str]) -> None:
    """Refuse methods that no route has, and bodies of a kind or a size that none takes."""
    if method not in METHODS:
        raise Refused(405, f"{method[:16]}: only GET and, to decide, POST", {"allow": ", ".join(METHODS)})
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", length):
        raise Refused(400, "content-length is no number")
    if int(length) > MOST_BODY:
        raise Refused(413, f"a body of {int(length):,} bytes: at most {MOST_BODY:,}", {"connection": "close"})
    if method == "GET" and (int(length) or "transfer-encoding" in headers):
        raise Refused(400, "a GET with a body", {"connection": "close"})
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != "application/json":
        raise Refused(415, "a decision is application/json")


def _query_token(scope: Scope) -> str | None:
    """The token in the address of a page."""
    query = scope["query_string"]
    if b"token=" not in query or scope["method"] != "GET" or not OPENS.fullmatch(scope["path"]):
        return None
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=64)
    except (UnicodeDecodeError, ValueError):
        return None
    return next((value for key, value in pairs if key == "token"), None)


def _without_token(scope: Scope) -> str:
    """The address of a page without its token. The path is one of ``OPENS``, so it leads nowhere else."""
    kept = b"&".join(part for part in scope["query_string"].split(b"&") if part and not part.startswith(b"token="))
    query = f"?{kept.decode('ascii')}" if kept and QUERY.fullmatch(kept) else ""
    return f"{scope['path']}{query}"


def _cookie(header: str, name: str) -> str | None:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def _capped(receive: Receive) -> Receive:
    """The body of a request, refused once it is longer than it may be: it may not say how long it is."""
    read = 0

    async def next_part() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MOST_BODY:
            raise Refused(413, f"a body of more than {MOST_BODY:,} bytes", {"connection": "close"})
        return message

    return next_part


def _saying(send: Send) -> Send:
    """Answers with what every one of them says, in pieces that a slow reader can be waited for."""

    async def next_part(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send({**message, "headers": _with_fixed_headers(message.get("headers", ()))})
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, max(len(body), 1), PIECE):
            last = at + PIECE >= len(body)
            await send({**message, "body": bytes(body[at : at + PIECE]), "more_body": more or not last})

    return next_part


def _with_fixed_headers(own: Pairs) -> list[tuple[bytes, bytes]]:
    names = {name.lower() for name, _ in own}
    always = [(name.encode(), value.encode()) for name, value in SAID.items()]
    kept = [(name, value) for name, value in own if name.lower().decode("latin-1") not in SAID]
    return [*always, *kept, *([] if b"cache-control" in names else [NO_STORE])]
