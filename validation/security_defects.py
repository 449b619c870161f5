"""What each command did that trusted a stranger, and what it does now: one line for each defect, for any checkout.

    python validation/security_defects.py [--src OTHER/src]

Two users, who differ in their configuration, a folder that the stranger made, and debug servers that answer as torch's do.
What ranks may ask of a collector is measured by ``bench/fuzz.py --target wire``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPS = "rank,step,class,start_ms,duration_ms\n" + "".join(
    f"{r},{s},compute,{s * 20},{10 + r}\n" for s in range(3) for r in range(2)
)
SERVED = """
import sys
sys.path[:0] = ["{tests}"]
from torch_workers import FR, FakeWorker, dump, serving
from click.testing import CliRunner
from taut.cli import main
with serving(FakeWorker({{FR: dump(5)}})) as places:
    CliRunner().invoke(main, ["watch", "pull", *places, "--keep", "keep", "--times", "1"])
"""

KEY = """
from pathlib import Path
from taut.audit.key import signing_key
from taut.audit.log import open_log
from taut.audit.note import public_key
with open_log(Path("taut-runs/audit.db")) as log:
    print(public_key(log.origin(), signing_key()))
"""


class Users:
    """The victim and the stranger, and a folder that they share."""

    def __init__(self, src: Path, folder: Path) -> None:
        self.src, self.folder = src, folder

    def taut(self, *words: str, user: str = "victim", **env: str) -> subprocess.CompletedProcess[str]:
        """A command of one of them."""
        return self.python("-m", "taut", *words, user=user, **env)

    def python(self, *words: str, user: str = "victim", **env: str) -> subprocess.CompletedProcess[str]:
        """Python, as one of them."""
        where = {"PYTHONPATH": str(self.src), "XDG_CONFIG_HOME": str(self.folder.parent / user), **env}
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env={**os.environ, **where}, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip

    def key(self) -> str:
        """The key that verifies what the victim signs in the stranger's log, whoever prints it."""
        return self.python("-c", KEY).stdout.strip()


def g1(users: Users) -> str:
    """``audit why --again`` of a stranger's record."""
    users.taut("export", "--to", "schema", "-o", "schema.json", user="stranger")
    done = users.taut(
        "audit", "why", "1", "--again", *(["--yes"] if "--yes" in users.taut("audit", "why", "--help").stdout else [])
    )
    return "runs the stranger's command" if "same bytes" in done.stdout else f"refused: {last(done)}"


def g2(users: Users) -> str:
    """``watch pull --keep`` into a folder with files of the user."""
    (users.folder / "keep" / "before").mkdir(parents=True)
    note = users.folder / "keep" / "before" / "notes.txt"
    note.write_text("mine")
    users.python("-c", SERVED.format(tests=ROOT / "tests"))
    return "the note is kept" if note.exists() else "the note is deleted"


def g3(users: Users) -> str:
    """``analyze`` in a folder with a stranger's log."""
    users.taut("analyze", "ops.csv", "-q", user="stranger")
    done = users.taut("analyze", "ops.csv", "-q", "-o", "mine")
    anchored = users.taut("audit", "verify", "--key", users.key()).stdout
    said = "the stranger's log is signed" if "anchored by a key" in anchored else f"not signed: {last(done)}"
    return f"exit {done.returncode}, run saved: {(users.folder / 'mine').is_dir()}; {said}"


def g5(users: Users) -> str:
    """A collector with the secret of the manifest."""
    try:
        done = users.taut("watch", "collect", "--port", "0", TAUT_WATCH_SECRET="change-me-openssl-rand-hex-16")
    except subprocess.TimeoutExpired:
        return "starts"
    return f"refused: {last(done)}"


def g6(users: Users) -> str:
    """``audit verify`` of a log that was set back behind what was signed."""
    users.taut("analyze", "ops.csv", "-q")
    shutil.copy(users.folder / "taut-runs" / "audit.db", users.folder / "old.db")
    users.taut("analyze", "ops.csv", "-q", "-o", "more")
    shutil.copy(users.folder / "old.db", users.folder / "taut-runs" / "audit.db")
    done = users.taut("audit", "verify")
    return f"exit {done.returncode}: {done.stdout.splitlines()[0][:110]}"


def g7(users: Users) -> str:
    """``export -o`` over a private file of the user."""
    path = users.folder / "notes.json"
    path.write_text("mine")
    path.chmod(0o600)
    done = users.taut("export", "--to", "schema", "-o", path.name)
    return f"exit {done.returncode}, kept: {path.read_text() == 'mine'}, mode {path.stat().st_mode & 0o777:o}"


def g8(users: Users) -> str:
    """The cookie of two servers with one token."""
    done = users.python("-c", "from taut.serve.guard import Door\nprint(Door('x' * 16).pass_word == Door('x' * 16).pass_word)")
    return "the same for ever" if done.stdout.strip() == "True" else "another for each server"


def g9(users: Users) -> str:
    """Floors of dependencies."""
    project = tomllib.loads((users.src.parent / "pyproject.toml").read_text())["project"]
    lines = [line for some in (project["dependencies"], *project["optional-dependencies"].values()) for line in some]
    return ", ".join(sorted({line for line in lines if line.startswith(("h11", "dask", "jinja2", "cryptography"))}))


def g10(users: Users) -> str:
    """Files that say what is trusted, and pin what is installed."""
    return ", ".join(
        f"{name}: {(users.src.parent / name).exists()}" for name in ("SECURITY.md", "docs/security.md", "lock.txt")
    )


DEFECTS: tuple[Callable[[Users], str], ...] = (g1, g2, g3, g5, g6, g7, g8, g9, g10)


def last(done: subprocess.CompletedProcess[str]) -> str:
    """The last line on standard error."""
    return (done.stderr.strip().splitlines() or [""])[-1].removeprefix("taut: ")[:150]


def main() -> None:
    """Show each defect in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="src folder of the checkout to look at")
    asked = parser.parse_args()
    for defect in DEFECTS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "of-the-stranger"
            folder.mkdir()
            (folder / "ops.csv").write_text(OPS)
            print(f"{defect.__name__.upper():4} {defect.__doc__} {defect(Users(asked.src.resolve(), folder))}", flush=True)


if __name__ == "__main__":
    main()
