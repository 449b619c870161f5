"""Run folders: nothing of anybody else's is ever deleted, and a path shows one whole folder at every moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from saved_folders import save, whole
from taut.core import folder as folders
from taut.core.errors import RunError
from taut.core.folder import add_file, checked_addition, is_run_folder, manifest_of, read_listed, read_steadily, save_folder
from taut.core.whole_file import scratch_name


def test_a_folder_is_replaced_by_a_newer_one(tmp_path: Path) -> None:
    save(tmp_path / "run", "old")
    save(tmp_path / "run", "new")
    assert whole(tmp_path / "run") == "new"
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("foreign", ["notes.txt", "c.parquet", ".hidden"])
def test_a_folder_with_a_file_that_its_manifest_does_not_list_is_kept(tmp_path: Path, foreign: str) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run" / foreign).write_text("mine")
    with pytest.raises(RunError, match="not as its manifest lists"):
        save(tmp_path / "run", "new")
    assert (tmp_path / "run" / foreign).read_text() == "mine"
    assert (tmp_path / "run" / "a.parquet").read_text() == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_a_folder_with_an_edited_file_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run" / "a.parquet").write_text("odd")
    with pytest.raises(RunError, match=r"a\.parquet"):
        save(tmp_path / "run")
    assert (tmp_path / "run" / "a.parquet").read_text() == "odd"


FOREIGN = ["{}", "", '{"files": 3}', '{"format": 1, "version": "0.1.0"}', '{"experiment": "notes", "files": {}}']


@pytest.mark.parametrize("text", FOREIGN)
def test_a_folder_whose_run_json_is_no_manifest_is_kept(tmp_path: Path, text: str) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "run.json").write_text(text)
    (tmp_path / "p" / "x").write_text("mine")
    with pytest.raises(RunError, match="no run folder"):
        save(tmp_path / "p")
    assert (tmp_path / "p" / "x").read_text() == "mine"


def test_a_manifest_that_lists_a_link_or_a_folder_lets_neither_be_deleted(tmp_path: Path) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "precious").write_text("old")
    (tmp_path / "run" / "a.parquet").unlink()
    (tmp_path / "run" / "a.parquet").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError):
        save(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "old"


def test_a_folder_called_like_a_scratch_folder_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / ".taut-0123456789abcdef01234567"
    other.mkdir()
    (other / "data.parquet").write_text("mine")
    save(tmp_path / "run")
    assert (other / "data.parquet").read_text() == "mine"


def test_what_a_killed_export_left_does_not_block_a_run(tmp_path: Path) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run" / scratch_name(".part")).write_text("half")
    save(tmp_path / "run", "new")
    assert whole(tmp_path / "run") == "new"


def test_a_private_folder_stays_private(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    save(tmp_path / "run", "one")
    save(tmp_path / "run", "two")
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700


def test_a_file_larger_than_its_manifest_says_is_not_read(tmp_path: Path) -> None:
    save(tmp_path / "run")
    os.truncate(tmp_path / "run" / "a.parquet", 1 << 40)
    manifest = manifest_of(tmp_path / "run")
    assert manifest is not None
    with pytest.raises(RunError, match="larger than it may be"):
        read_listed(tmp_path / "run", "a.parquet", manifest.files["a.parquet"])


@pytest.mark.parametrize("name", ["run.json", "a.parquet", "mine.pftrace"])
def test_nothing_of_a_run_or_of_others_is_overwritten_by_an_export(tmp_path: Path, name: str) -> None:
    save(tmp_path / "run")
    (tmp_path / "run" / "mine.pftrace").write_text("mine")
    with pytest.raises(RunError, match="give another -o"):
        checked_addition(tmp_path / "run" / name)
    checked_addition(tmp_path / "run" / "new.pftrace")


def test_names_that_cannot_be_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for target in (tmp_path / "loop" / "run", tmp_path / ("n" * 300)):
        with pytest.raises(RunError, match="give another -o"):
            save(target)


def test_a_pipe_called_run_json_is_no_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    assert not is_run_folder(tmp_path)


def test_the_current_folder_and_a_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match="current folder"):
        save(Path("."))
    Path("file").write_text("mine")
    with pytest.raises(RunError, match="is no folder"):
        save(Path("file"))
    assert Path("file").read_text() == "mine"


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    save(tmp_path / "link", "one")
    save(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert whole(tmp_path / "elsewhere") == "two"


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        save(tmp_path / "run")
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "run" / "run.json").stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_folder_and_nothing_else(tmp_path: Path) -> None:
    def fail(scratch: Path) -> dict[str, object]:
        (scratch / "a.parquet").write_text("half")
        raise OSError(28, "No space left on device")

    save(tmp_path / "run", "old")
    with pytest.raises(RunError, match="No space left"):
        save_folder(tmp_path / "run", fail)
    assert whole(tmp_path / "run") == "old"
    assert os.listdir(tmp_path) == ["run"]


def test_an_added_file_goes_with_its_folder(tmp_path: Path) -> None:
    save(tmp_path / "run", "old")
    (tmp_path / "run" / "perfetto.pftrace").write_text("made from the run")
    add_file(tmp_path / "run", "perfetto.pftrace")
    save(tmp_path / "run", "new")
    assert whole(tmp_path / "run") == "new"


def test_a_file_put_into_the_old_folder_at_the_last_moment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = folders._exchanged

    def late(one: Path, other: Path) -> bool:
        (other / "late.txt").write_text("mine")
        return exchange(one, other)

    save(tmp_path / "run", "old")
    monkeypatch.setattr(folders, "_exchanged", late)
    save(tmp_path / "run", "new")
    assert whole(tmp_path / "run") == "new"
    (kept,) = tmp_path.glob("run-kept-*/late.txt")
    assert kept.read_text() == "mine"


KILLED = '''
import os, sys
from pathlib import Path
sys.path[:0] = {path!r}
from taut.core import folder as folders
from saved_folders import save, whole
EXCHANGE = {exchange}
folders._sync = lambda folder: None  # kills leave the page cache alone
if not EXCHANGE:
    folders._exchanged = lambda one, other: False
root = Path({root!r})
lines = kills = 0
def saved(before_line):
    """Save in a child, with a call before every line and after the last; its exit code, and what the calls said."""
    reader, told = os.pipe()
    child = os.fork()
    if child == 0:
        def trace(frame, event, arg):
            if not frame.f_code.co_filename.endswith(("folder.py", "contextlib.py")):
                return None
            if event == "line":
                os.write(told, before_line())
            return trace
        sys.settrace(trace)
        save(root / "run", "new")
        sys.settrace(None)
        os.write(told, before_line())
        os._exit(0)
    os.close(told)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said
def look():
    """1 if the files are others than before the line ahead of this, else 0."""
    global last
    now = [(path, path.lstat().st_mode, path.is_file() and path.read_bytes()) for path in sorted(root.rglob("*"))]
    changed, last = now != last, now
    return b"1" if changed else b"0"
def die():
    global to_go
    to_go -= 1
    if to_go < 0:
        os._exit(9)
    return b""
def begin(old):
    if old:
        save(root / "run", "old")
    elif (root / "run").exists():
        save(root / "run", "gone")
        folders.remove_own(root / "run")
for old in (True, False):
    begin(old)
    last = None
    code, changes = saved(look)
    assert code == 0
    lines += len(changes)
    for point in (at for at, changed in enumerate(changes.decode()) if changed == "1"):
        begin(old)
        to_go = point
        assert saved(die)[0] == 9
        if old and not EXCHANGE and not (root / "run").exists():
            folders._clean(root)  # what the next writer does first
        if old or (root / "run").exists():
            assert whole(root / "run") in ("old", "new"), point
        save(root / "other", "next")
        left = set(os.listdir(root)) - {{"run", "other"}}
        assert not left, (point, left)
        kills += 1
print(lines, kills)
'''


@pytest.mark.parametrize("exchange", [True, False])
def test_a_kill_at_any_line_loses_nothing_and_the_next_writer_cleans_up(tmp_path: Path, exchange: bool) -> None:
    """Kills before lines between which no file changes leave the same behind: of those, one is made."""
    here = [str(Path(__file__).parents[1]), str(Path(folders.__file__).parents[2])]
    code = KILLED.format(path=here, root=str(tmp_path), exchange=exchange)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines, kills = map(int, done.stdout.split())
    assert lines > 100
    assert kills > 10


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from saved_folders import save
for i in range({times}):
    save(Path({root!r}) / "run", {name!r} + str(i) * 1000)
"""
TIMES = 40


def test_two_writers_and_a_reader_of_one_folder_see_whole_folders_only(tmp_path: Path) -> None:
    here = [str(Path(__file__).parents[1]), str(Path(folders.__file__).parents[2])]
    save(tmp_path / "run", "first")
    codes = [WRITER.format(path=here, root=str(tmp_path), name=name, times=TIMES) for name in "ab"]
    writers = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for code in codes]
    seen: set[str] = set()
    while any(writer.poll() is None for writer in writers):
        seen.add(read_steadily(tmp_path / "run", lambda: whole(tmp_path / "run"))[:2])
    assert [writer.communicate(timeout=60)[1] for writer in writers] == ["", ""]
    assert seen
    assert whole(tmp_path / "run")[0] in "ab"
    assert os.listdir(tmp_path) == ["run"]
