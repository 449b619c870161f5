"""What the API answers: every view of a run, one line where there is none, and never a file that was not asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from served_app import BEARER, HOST, App, run_folder
from taut.core.folder import RUN
from taut.result.view_types import ANSWERS
from taut.serve import catalogue
from taut.serve.routes import ROUTES

OURS = {**BEARER, "origin": f"http://{HOST}", "content-type": "application/json"}
ASKED = {
    "frame": "?begin_ns=0&end_ns=10000000&rows=2&columns=100&lines=2",
    "op": "?op=0",
    "delay": "?rank=1&step=1&ms=5",
    "whatif": "?fix=rank%3D1",
}
NOT_HERE = {"bill": "not a bill", "control": "nobody decides anything here"}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("runs", "live", *NOT_HERE)])
def test_every_view_is_of_its_type(app: App, name: str) -> None:
    found = app.get(f"/api/runs/{app.ids()[0]}/{name}{ASKED.get(name, '')}")
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "application/json"
    msgspec.json.decode(found.content, type=ANSWERS[name])


@pytest.mark.parametrize("name", NOT_HERE)
def test_a_view_that_a_run_does_not_have(app: App, name: str) -> None:
    found = app.get(f"/api/runs/{app.ids()[0]}/{name}")
    assert found.status_code == 409
    assert NOT_HERE[name] in found.json()["error"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("op", "give op, or row and at_ns"),
        ("op?op=1&row=1&at_ns=1", "give op, or row and at_ns"),
        ("op?op=999999", "no op 999999"),
        ("frame?begin_ns=5&end_ns=5&rows=1&columns=1&lines=1", "no such time"),
        ("frame?begin_ns=0&end_ns=5&rows=1&columns=5000&lines=1", "columns=5000"),
        ("frame?begin_ns=0&end_ns=5&rows=9&columns=5&lines=1", "no such rows"),
        ("delay?rank=7&step=1&ms=5", "7"),
        ("whatif?fix=rank", "rank"),
        ("whatif?fix=rank%3D99", "99"),
        ("overview?x=1", "'x': this address takes nothing"),
    ],
)
def test_questions_that_do_not_fit(app: App, path: str, says: str) -> None:
    found = app.get(f"/api/runs/{app.ids()[0]}/{path}")
    assert found.status_code == 400, found.text
    assert says in found.json()["error"]
    assert "\n" not in found.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/0123456789ab/overview", "/api/runs/../overview", "/api/runs/..%2f..%2fetc/overview",
        "/api/runs/%2e%2e/overview", "/api/runs/%252e%252e%252f/overview", "/api/runs/job-1/overview", "/api/runs/%00/overview",
        "/api/runs/..%5c/overview", "/run/0123456789ab/overview", "/static/../bundle.py", "/static/..%2fbundle.py",
        "/static/%2e%2e%2f%2e%2e%2fbundle.py", "/static/page.html.j2", "/static//etc/passwd", "/static/core.js/", "/static/",
        "/api/runs/", "/api", "//", "/etc/passwd", "/run.json", "/taut-runs/job-1/run.json", "/api/runs/%ff/axis",
        "/api/runs/%C0%AE%C0%AE/axis", "/docs", "/favicon.ico",
    ],
)  # fmt: skip
def test_nothing_else_is_there(app: App, path: str) -> None:
    found = app.get(f"http://{HOST}{path}")
    assert found.status_code == 404
    assert list(found.json()) == ["error"]


def test_views_of_a_run_are_pages_and_others_are_not(app: App) -> None:
    name = app.ids()[0]
    assert app.get(f"/run/{name}/timeline?begin=3&whatever=x").headers["content-type"] == "text/html; charset=utf-8"
    assert app.get(f"/run/{name}/nothing").status_code == 404
    assert app.get("/").text == app.get(f"/run/{name}/bill").text == app.get("/live?job=x").text


def test_static_files_are_those_of_the_list(app: App) -> None:
    from taut.render.page.bundle import STATIC

    assert {app.get(f"/static/{name}").headers["content-type"] for name in STATIC} == set(STATIC.values())


def test_the_trace_is_the_one_that_is_exported(app: App, runs: Path, tmp_path: Path) -> None:
    from taut.export import perfetto
    from taut.stored import open_run

    run = open_run(runs / "job-1")
    with (tmp_path / "trace").open("w+b") as out:
        perfetto(run.graph, run.waits, run.result.findings, out)
        out.seek(0)
        assert app.get(f"/api/runs/{app.ids()[0]}/perfetto").content == out.read()


def test_the_description_names_every_route_of_the_api(app: App) -> None:
    told = app.get("/api/openapi.json").json()
    assert told["openapi"] == "3.1.0"
    ours = {(route.path, route.method.lower()) for route in ROUTES if route.path.startswith("/api/")}
    assert {(path, method) for path, about in told["paths"].items() for method in about} == ours
    assert set(ANSWERS) - {"runs"} <= {path.rpartition("/")[2] for path in told["paths"]}


@pytest.fixture
def changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[App, Path]]:
    monkeypatch.setattr(catalogue, "FRESH_S", 0.0)
    run_folder(tmp_path / "stays")
    app = App([tmp_path])
    yield app, run_folder(tmp_path / "goes", steps=5)
    app.close()


def id_of(app: App, folder: Path) -> str:
    return next(one["id"] for one in app.get("/api/runs").json()["runs"] if one["folder"] == str(folder))


def test_a_run_that_is_deleted_while_it_is_served(changing: tuple[App, Path]) -> None:
    app, folder = changing
    name = id_of(app, folder)
    assert app.get(f"/api/runs/{name}/axis").status_code == 200
    shutil.rmtree(folder)
    assert app.get(f"/api/runs/{name}/axis").status_code == 404
    assert app.get(f"/api/runs/{app.ids()[0]}/axis").status_code == 200


@pytest.mark.parametrize("file", ["ops.parquet", "edges.parquet", "waits.parquet"])
def test_a_damaged_run_is_one_line_and_the_others_go_on(changing: tuple[App, Path], file: str) -> None:
    app, folder = changing
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    found = app.get(f"/api/runs/{id_of(app, folder)}/op?op=0")
    assert found.status_code == 409
    assert file in found.json()["error"]
    assert app.get(f"/api/runs/{id_of(app, folder.parent / 'stays')}/op?op=0").status_code == 200
    (folder / file).write_bytes(data)
    assert app.get(f"/api/runs/{id_of(app, folder)}/op?op=0").status_code == 200


def test_a_run_without_its_manifest(changing: tuple[App, Path]) -> None:
    app, folder = changing
    name = id_of(app, folder)
    (folder / RUN).unlink()
    assert app.get(f"/api/runs/{name}/overview").status_code == 404
    assert app.said == []


def test_a_decision_is_what_taut_audit_decide_records(changing: tuple[App, Path], tmp_path: Path) -> None:
    app, folder = changing
    name = id_of(app, folder)
    (first, *_) = app.get(f"/api/runs/{name}/decisions").json()["open"]
    assert app.get(f"/api/runs/{name}/decisions").json()["log"] != str(tmp_path / "audit.db")
    sent = msgspec.json.encode({"finding": first["id"], "do": "drain <b>node3</b>", "by": "on-call"})
    from taut.audit.log import open_log

    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        log.append("verb", {})
    found = app.ask("POST", f"/api/runs/{name}/decide", OURS, sent)
    assert found.status_code == 200, found.text
    told = found.json()
    assert [row["record"]["details"]["do"] for row in told["decisions"]] == ["drain <b>node3</b>"]
    assert first["id"] not in [one["id"] for one in told["open"]]
    assert told["log"] == str(tmp_path / "audit.db")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"finding": "f-1"}', b'{"finding": "no-such", "do": "x", "by": "y"}', b"\xff", b"[" * 5000,
     b'{"finding": "f-1", "do": " ", "by": "y"}', b'{"finding": "f-1", "do": "x", "by": ""}',
     b'{"finding": 1, "do": "x", "by": "y"}',
     b'{"finding": "f-1", "do": "' + b"x" * 3000 + b'", "by": "y"}'],
)  # fmt: skip
def test_no_decisions(app: App, body: bytes, runs: Path) -> None:
    found = app.ask("POST", f"/api/runs/{app.ids()[0]}/decide", OURS, body)
    assert found.status_code == 400, found.text
    assert not (runs / "audit.db").exists()


def test_what_nobody_foresaw_is_told_at_the_terminal(changing: tuple[App, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    app, _ = changing

    def broken(*_: object) -> object:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("taut.serve.openapi.openapi", broken)
    found = app.get("/api/openapi.json")
    assert (found.status_code, "secret" in found.text) == (500, False)
    assert [line[:24] for line in app.said] == ["taut: ZeroDivisionError:"]


def test_a_finding_of_many_ranks_can_be_asked_about(app: App) -> None:
    fixes = "&".join(f"fix=rank%3D{one % 2}" for one in range(300))
    assert app.get(f"/api/runs/{app.ids()[0]}/whatif?{fixes}").status_code == 200
