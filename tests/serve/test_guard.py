"""Who is let in, from where, and what every answer says to a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from served_app import BEARER, HOST, PORT, TOKEN, App
from taut.serve.guard import CSP, MOST_BODY, Door
from taut.serve.routes import ROUTES

OURS = {**BEARER, "origin": f"http://{HOST}", "sec-fetch-site": "same-origin", "content-type": "application/json"}
PATHS = [route.path.replace("{run}", "0" * 12).replace("{view}", "overview").replace("{name}", "core.js") for route in ROUTES]


@pytest.mark.parametrize("path", [*PATHS, "/nowhere", "/static/../x", "/api"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"])
def test_without_a_token_nothing_is_answered(app: App, method: str, path: str) -> None:
    found = app.ask(method, path, {})
    assert found.status_code in (401, 403)
    assert method == "HEAD" or list(found.json()) == ["error"]


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}x"}, {"authorization": "Bearer "}, {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"}, {"cookie": f"taut-{PORT}={TOKEN}"}, {"cookie": "taut-8321"}, {"cookie": "\x00"},
        {"authorization": "Bearer ä"},
    ],
)  # fmt: skip
def test_wrong_tokens(app: App, headers: dict[str, str]) -> None:
    assert app.get("/api/runs", {name: value.encode("latin-1") for name, value in headers.items()}).status_code == 401  # type: ignore[misc]


def test_a_cookie_counts_under_its_name_and_without_a_wrong_bearer(app: App) -> None:
    held = app.door.pass_word
    assert app.get("/api/runs", {"cookie": f"taut-{PORT}={held}"}).status_code == 200
    assert app.get("/api/runs", {"cookie": f"taut-1={held}"}).status_code == 401
    assert app.get("/api/runs", {"authorization": "Bearer wrong", "cookie": f"taut-{PORT}={held}"}).status_code == 401


def test_a_cookie_ends_with_its_server_though_the_token_stays(app: App, runs: Path) -> None:
    cookie = app.get(f"/?token={TOKEN}", {}).headers["set-cookie"].partition(";")[0]
    restarted = App([runs])
    try:
        assert restarted.get("/api/runs", {"cookie": cookie}).status_code == 401
        assert restarted.get("/api/runs").status_code == 200
    finally:
        restarted.close()


@pytest.mark.parametrize("path", ["/", "/run/0123456789ab/timeline"])
def test_a_token_in_the_address_becomes_a_cookie(app: App, path: str) -> None:
    found = app.get(f"{path}?step=3&token={TOKEN}&rank=%202", {})
    assert (found.status_code, found.headers["location"]) == (303, f"{path}?step=3&rank=%202")
    cookie = found.headers["set-cookie"]
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert TOKEN not in cookie + found.text
    assert app.get("/api/runs", {"cookie": cookie.partition(";")[0]}).status_code == 200


@pytest.mark.parametrize(
    "path", ["//evil.example/", "/api/runs", "/static/core.js", "/run/x/y", "/%2F%2Fevil.example", "/\\evil"]
)
def test_only_pages_take_a_token_so_nobody_is_sent_elsewhere(app: App, path: str) -> None:
    found = app.get(f"http://{HOST}{path}?token={TOKEN}", {})
    assert (found.status_code, found.headers.get("location")) == (401, None)


def test_a_wrong_token_in_the_address(app: App) -> None:
    assert app.get("/?token=wrong", {}).status_code == 403
    assert app.get("/?token=%FF", BEARER).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8321", "", "[::2]", "10.0.0.1", "localhost@evil", "a b"]
)
def test_other_names_are_refused(app: App, host: str) -> None:
    assert app.get("/api/runs", {**BEARER, "host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8321", "127.0.0.1:9", "[::1]:8321"])
def test_own_names(app: App, host: str) -> None:
    assert app.get("/api/runs", {**BEARER, "host": host}).status_code == 200


def test_all_addresses_take_numbers_and_no_other_names() -> None:
    door = Door(TOKEN, frozenset(("box",)), any_address=True)
    assert [door.knows(host) for host in ("10.0.0.7:8321", "[fe80::1]", "box:1", "evil.example", "10.0.0.7.evil.example")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"sec-fetch-site": "SAME-ORIGIN"},
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": f"https://{HOST}"}, {"origin": "http://127.0.0.1:3000"},
        {"origin": f"http://{HOST}.evil.example"}, {"origin": ""},
    ],
)  # fmt: skip
def test_other_sites_are_refused(app: App, headers: dict[str, str]) -> None:
    assert app.get("/api/runs", {**BEARER, **headers}).status_code == 403
    assert app.ask("POST", "/api/runs/0/decide", {**OURS, **headers}, b"{}").status_code == 403


def test_a_decision_needs_a_page_of_this_server(app: App) -> None:
    path = f"/api/runs/{app.ids()[0]}/decide"
    for lacking in ({"origin", "sec-fetch-site"}, {"origin"}):
        headers = {name: value for name, value in OURS.items() if name not in lacking}
        assert app.ask("POST", path, headers, b"{}").status_code == 403
    assert app.ask("POST", path, {**OURS, "sec-fetch-site": "none"}, b"{}").status_code == 403
    assert app.ask("POST", path, {**OURS, "content-type": "text/plain"}, b"{}").status_code == 415
    assert app.ask("POST", path, OURS, b"{}").status_code == 400


@pytest.mark.parametrize("twice", ["host", "origin", "content-length", "authorization"])
def test_a_header_that_matters_is_given_once(app: App, twice: str) -> None:
    given = {**BEARER, "host": HOST, "origin": f"http://{HOST}", "content-length": "0"}
    pairs = [*given.items(), (twice, given[twice])]
    assert app.do(lambda client: client.get("/api/runs", headers=pairs)).status_code == 400


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "PROPFIND"])
def test_only_methods_of_the_list(app: App, method: str) -> None:
    assert app.ask(method, "/api/runs", BEARER).status_code == 405


def test_a_route_takes_its_own_method(app: App) -> None:
    assert app.ask("POST", "/api/runs", OURS, b"{}").status_code == 405
    assert app.get(f"/api/runs/{app.ids()[0]}/decide").status_code == 405


def test_bodies_are_short(app: App) -> None:
    path = f"/api/runs/{app.ids()[0]}/decide"
    assert app.ask("POST", path, OURS, b" " * (MOST_BODY + 1)).status_code == 413
    assert app.ask("GET", "/api/runs", BEARER, b"x").status_code == 400

    async def endless():  # type: ignore[no-untyped-def]
        for _ in range(1000):
            yield b" " * 1024

    found = app.do(lambda client: client.post(path, headers=OURS, content=endless()))
    assert found.status_code == 413


def test_what_every_answer_says(app: App) -> None:
    for path, headers in (("/api/runs", BEARER), ("/api/runs", {}), ("/nowhere", BEARER), (f"/?token={TOKEN}", {})):
        found = app.get(path, headers).headers
        assert found["content-security-policy"] == CSP
        assert found["x-content-type-options"] == "nosniff"
        assert found["referrer-policy"] == "no-referrer"
        assert found["cross-origin-opener-policy"] == "same-origin-allow-popups"
        assert found["cross-origin-resource-policy"] == "same-origin"
        assert found["cache-control"] == "no-store"
        assert not {"server", "date", "access-control-allow-origin", "location"} & set(found) - {"location"}


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("path", "headers", "status", "says"),
    [
        ("/", {}, 401, "open the address that taut serve printed again"),
        ("/run/0/overview", {}, 401, "open the address that taut serve printed again"),
        ("/nowhere", BEARER, 404, '<a href="/">all runs are here</a>'),
        ("/?token=wrong<b>", {}, 403, "wrong token"),
    ],
)
def test_a_browser_gets_a_page_that_says_what_to_do(
    app: App, path: str, headers: dict[str, str], status: int, says: str
) -> None:
    found = app.get(path, {**headers, **BROWSER})
    assert (found.status_code, found.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert says in found.text
    assert found.headers["content-security-policy"] == CSP
    assert found.headers["cache-control"] == "no-store"
    assert not any(one in found.text for one in ("<script", "<style", "style=", "<b>"))


def test_the_api_answers_a_browser_in_json(app: App) -> None:
    for path, headers in (("/api/runs", {}), ("/api/nowhere", BEARER), ("/static/nowhere", BEARER)):
        assert app.get(path, {**headers, **BROWSER}).headers["content-type"] == "application/json"


def test_ranges_are_not_looked_at(app: App) -> None:
    found = app.get("/api/runs", {**BEARER, "range": "bytes=0-3,5-9"})
    assert (found.status_code, "content-range" in found.headers) == (200, False)


def test_neither_token_nor_nonce_is_printed() -> None:
    shown = repr(Door(TOKEN, nonce=b"a-nonce"))
    assert TOKEN not in shown
    assert "a-nonce" not in shown
