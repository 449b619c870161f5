"""Foreign logs and folders: ``audit why --again`` of whatever records somebody wrote, and ``watch pull`` into any folder.

A case is a recipe in JSON: who wrote which record and how the file was damaged, or which files lie in the folder, whose they
are, and when the reading is killed. What must hold: no command of a stranger is run, none that does more than compute, none
with a secret or outside its scratch folder; no file is deleted or changed that taut did not write; and after a kill the next
reading goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from fuzzing import seeds as small
from fuzzing.judge import FOLDER, BrokenLaw, Case
from fuzzing.seeds import Seed, seed

RECIPE = "recipe.json"
VERBS = (
    "analyze",
    "whatif",
    "compare",
    "project",
    "control",
    "bill",
    "brief",
    "export",
    "demo",
    "serve",
    "watch",
    "lab",
    "audit",
)
WORDS = (
    "ops.csv", "job/ops.csv", "-o", "out", "--output=/tmp/out", "-o/etc/passwd", "../../../../etc/x", "--json", "-q", "--audit",
    "--audit=/tmp/x.db", "--on", "dask://host:8786", "--on=local", "s3://bucket/key", "--metrics=http://host/", "https://h/x",
    "--to", "schema", "html", "--evidence", "/root", "pull", "collect", "--keep", ".", "--", "-", "\x00", "\udcff", "", "é",
    "--force", "--seed=1", "gpt-175b", "why", "1", "--again", "--yes",
)  # fmt: skip
SECRET = {"TAUT_WATCH_SECRET": "of the collector", "TAUT_SERVE_TOKEN": "of the pages"}
ALLOWED = ("analyze", "bill", "brief", "compare", "control", "demo", "export", "project", "whatif")


@contextlib.contextmanager
def _user(home: Path) -> Iterator[None]:
    """Run the block as the user with this configuration."""
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(home), **SECRET}):
        yield


def _contents(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: files by their bytes, links by where they lead."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


# -- records of others --------------------------------------------------------------------------------------------------------


def logs() -> list[Seed]:
    """A folder with an op table, and a record of it."""
    from taut import __version__

    (table, *_) = small.op_tables()
    name, data = next(iter(table.files.items()))
    words, version = ["analyze", f"{FOLDER}/{name}", "--json", "-q"], __version__
    record = {"author": "me", "words": words, "version": version, "printed": "0" * 64, "inputs": words[1:2], "outputs": []}
    return [seed({name: data, RECIPE: json.dumps({"records": [record], "flips": []}).encode()})]


def foreign_log(rng: Random, one: Seed, number: int) -> Case:
    """A few records of either user, with words that may do harm; sometimes a file that somebody damaged."""
    from taut import __version__

    name = next(name for name in one.files if name != RECIPE)
    records: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        words = [rng.choice(VERBS), *(rng.choice((*WORDS, name)) for _ in range(rng.randint(0, 5)))]
        if rng.random() < 0.5:  # a command that could be run, with at most one word more
            words = rng.choice(
                (["analyze", f"job/{name}", "--json"], ["export", "--to", "schema"], ["project", "gpt-175b", "--json"])
            )
            words = [*words, *rng.sample(WORDS, rng.randint(0, 1))]
        elif rng.random() < 0.3:
            rng.shuffle(words)
        written = [word for word in words if rng.random() < 0.3]
        records.append(
            {
                "author": rng.choice(("me", "me", "stranger")), "words": words, "printed": rng.choice((None, "0" * 64)),
                "kind": rng.choice(("verb",) * 8 + ("decision", "begin")), "version": rng.choice((__version__,) * 9 + ("9",)),
                "inputs": [word for word in words if rng.random() < 0.2] + [name] * (rng.random() < 0.5),
                "outputs": written, "read": rng.choice(([], [name], ["standard input"], ["s3://bucket/key"])),
                "odd": rng.choice((None,) * 9 + ("arguments", "inputs", "outputs", "read")),
            }
        )  # fmt: skip
    flips = [(rng.random(), rng.randrange(1, 256)) for _ in range(rng.choice((0, 0, 0, 1, 4)))]
    return Case({name: one.files[name], RECIPE: json.dumps({"records": records, "flips": flips}).encode()}, [], number)


def again(root: Path, case: Case) -> str:
    """``audit why --again`` of every record, with what would run it replaced by what checks it."""
    from click.testing import CliRunner

    from taut.audit.adoption import adopt
    from taut.cli import main
    from taut.core.errors import AuditError

    recipe = json.loads(case.files[RECIPE])
    log = Path(FOLDER, "taut-runs", "audit.db")
    _write_log(log, recipe["records"], root)
    with _user(root / "me"), contextlib.suppress(AuditError):
        adopt(log)
    data = bytearray(log.read_bytes())
    for place, bits in recipe["flips"]:
        data[int(place * len(data))] ^= bits
    log.write_bytes(data)
    own = [record["words"] for record in recipe["records"] if record["author"] == "me"]
    outcome, before = "refused", _contents(root)

    def ran(words: list[str], here: Path, env: dict[str, str], given: bytes) -> subprocess.CompletedProcess[bytes]:
        nonlocal outcome
        outcome = "accepted"
        _check_run(words, own, here, env)
        return subprocess.CompletedProcess(words, 0, b"", b"")

    with _user(root / "me"), mock.patch("taut.cli.again.ran", ran):
        for index in range(1, len(recipe["records"]) + 1):
            words = ["audit", "why", str(index), "--again", "--yes", "--audit", str(log)]
            done = CliRunner().invoke(main, words, input=b"")
            if isinstance(done.exception, BrokenLaw) or not isinstance(done.exception, SystemExit | None):
                raise done.exception
            if done.exit_code not in (0, 1, 2, 5):
                raise BrokenLaw(f"exit code {done.exit_code}: {done.stderr[:300]}")
    if {name: data for name, data in _contents(root).items() if not name.startswith("me/")} != {
        name: data for name, data in before.items() if not name.startswith("me/")
    }:
        raise BrokenLaw("files changed beside the configuration")
    return outcome


def _write_log(path: Path, records: list[dict[str, Any]], root: Path) -> None:
    from taut.audit.adoption import adopt
    from taut.audit.log import open_log
    from taut.audit.record import Text

    path.parent.mkdir(parents=True)
    for turn, record in enumerate(records):
        with _user(root / record["author"]), contextlib.ExitStack() as stack:
            if turn:
                adopt(path)
            log = stack.enter_context(open_log(path, record.get("version", "1"), create=True))
            details: dict[str, Any] = {
                "verb": "analyze", "code": 0, "printed": record.get("printed"),
                "arguments": [Text(word) for word in record["words"]],
                "inputs": [{"name": Text(name), "what": "name", "sha256": None} for name in record.get("inputs", ())],
                "outputs": [{"name": Text(name), "sha256": "0" * 64} for name in record.get("outputs", ())],
                "read": [{"name": Text(name), "sha256": "0" * 64} for name in record.get("read", ())],
            }  # fmt: skip
            if record.get("odd"):
                details[record["odd"]] = [7, "x", None, {"name": 3}]
            log.append(record.get("kind", "verb"), details)


def _check_run(words: list[str], own: list[list[str]], here: Path, env: dict[str, str]) -> None:
    """Refuse a command that must not run."""
    scratch, plain = Path(words[1]).parent, words[2:]
    if words[0] != "--audit" or not here.is_relative_to(scratch) or not scratch.name.startswith("taut-again-"):
        raise BrokenLaw(f"run outside its scratch folder: {words} in {here}")
    if not any(verb in plain for verb in ALLOWED) or any(word in ("serve", "watch", "lab", "audit") for word in plain[:1]):
        raise BrokenLaw(f"more than computing: {plain}")
    if not any(len(plain) <= len(one) for one in own):
        raise BrokenLaw(f"a command of a stranger: {plain}")
    if any("://" in word for word in plain) or "--on" in plain:
        raise BrokenLaw(f"an address or a cluster: {plain}")
    if [name for name in env if name.startswith("TAUT_")] != ["TAUT_AUDIT"] or not set(SECRET.values()).isdisjoint(
        env.values()
    ):
        raise BrokenLaw("a secret in the environment")


# -- folders of others --------------------------------------------------------------------------------------------------------

NAMES = ("fr_rank0.json", "fr_rank1.json", "fr_rank2.json", "notes.txt", "run.json", ".hidden", "x.part", "a b", "\udcff")
PARTS = ("now", "before", "", "other")


class Killed(BaseException):
    """The process is gone at this moment."""


def folders() -> list[Seed]:
    """One reading into a new folder."""
    return [seed({RECIPE: json.dumps({"rounds": 1, "changes": [], "kill": None}).encode()})]


def foreign_folder(rng: Random, one: Seed, number: int) -> Case:
    """Some readings, then files of others, links and changes; a kill at any step of the next reading."""
    changes = []
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        what = rng.choice(("file", "file", "change", "link", "folder-link", "folder", "gone", "touched"))
        changes.append([what, rng.choice(PARTS), rng.choice(NAMES)])
    kill = None if rng.random() < 0.5 else rng.randrange(24)
    recipe = {
        "rounds": rng.randrange(4),
        "changes": changes,
        "kill": kill,
        "ranks": rng.randint(1, 3),
        "anew": rng.random() < 0.5,
    }
    return Case({RECIPE: json.dumps(recipe).encode()}, [], number)


def pull(root: Path, case: Case) -> str:
    """Readings into the folder, of a job that is not there: its answers are made here."""
    from taut.core.errors import TautError
    from taut.watch.pull import Puller
    from taut.watch.torch_workers import Answer, workers

    recipe = json.loads(case.files[RECIPE])
    keep, outside = root / "keep", root / "outside"
    outside.mkdir()
    (outside / "fr_rank0.json").write_bytes(b"mine")
    some = workers([f"localhost:{25950 + k}" for k in range(recipe.get("ranks", 1))])
    body = small.flight_json()[0]
    data = next(iter(body.files.values()))

    def asked(given: Any, **_: Any) -> dict[Any, Any]:
        return {worker: Answer(worker, data, 200, 0.001, "") for worker in given}

    with _user(root / "me"), mock.patch("taut.watch.pull.ask_all", asked):
        puller = Puller(some, keep)
        for _ in range(recipe["rounds"]):
            puller.round()
        foreign = _change(keep, outside, recipe["changes"])
        before, outer = _contents(keep) if keep.exists() else {}, _contents(outside)
        refused = False
        try:
            with _killed(recipe["kill"]):
                (Puller(some, keep) if recipe.get("anew") else puller).round()
        except TautError:
            refused = True
        except Killed:
            pass
        after = _contents(keep) if keep.exists() else {}
        if refused and after != before:
            raise BrokenLaw("a folder that was refused is changed")
        if any(after.get(name) != before[name] for name in foreign if name in before) or _contents(outside) != outer:
            raise BrokenLaw(f"a file of somebody else is gone or changed: {recipe['changes']}")
        if not foreign and not refused:
            Puller(some, keep).round()  # after a kill it goes on: a refusal is a broken promise
    return "refused" if refused else "accepted"


def _change(keep: Path, outside: Path, changes: list[list[str]]) -> set[str]:
    """Do what somebody else does to a folder; the names of what is theirs then."""
    foreign: set[str] = set()
    for what, part, name in changes:
        path = keep / part / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            if what == "file" and not os.path.lexists(path):
                path.write_bytes(b"mine")
            elif what == "change" and path.is_file() and not path.is_symlink():
                path.write_bytes(b"mine now")
            elif what == "touched" and path.is_file() and not path.is_symlink():
                os.utime(path, ns=(1, 1))
            elif what == "link" and not os.path.lexists(path):
                path.symlink_to(outside / "fr_rank0.json")
            elif what == "folder-link" and part and not list((keep / part).iterdir()):
                (keep / part).rmdir()
                (keep / part).symlink_to(outside)
                foreign.add(part)
                continue
            elif what == "folder":
                path.mkdir()
                (path / "fr_rank0.json").write_bytes(b"mine")
                foreign.add(f"{part}/{name}/fr_rank0.json".lstrip("/"))
                continue
            elif what == "gone":
                path.unlink()
                continue
            else:
                continue
            foreign.add(f"{part}/{name}".lstrip("/"))
    return foreign


@contextlib.contextmanager
def _killed(after: int | None) -> Iterator[None]:
    """Be killed after so many changes of the file system."""
    if after is None:
        yield
        return
    left = after

    def counting(real: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1
            return real(*args, **options)

        return call

    with contextlib.ExitStack() as stack:
        for owner, name in ((Path, "unlink"), (Path, "rename"), (Path, "write_bytes"), (os, "replace"), (Path, "mkdir")):
            stack.enter_context(mock.patch.object(owner, name, counting(getattr(owner, name))))
        yield
