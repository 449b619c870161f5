"""Kept machine code: only what was written, by whom it should be, is ever loaded, and trouble with files is no trouble."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from taut.core import native
from taut.core.jit import kernel

VALUES = np.arange(5)


@kernel()
def doubled(values: Any) -> Any:
    return 2 * values


@pytest.fixture(scope="module")
def compiled() -> Any:
    from numba import typeof

    made: Any = doubled.compiled
    made.compile((typeof(VALUES),))
    return made


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "taut"


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    """The folder beside the module."""
    (tmp_path / "module").mkdir(mode=0o755)
    return tmp_path / "module" / "__pycache__"


@pytest.fixture
def code(beside: Path) -> native.Code:
    return replace(doubled.code("l1"), file=str(beside.parent / "module.py"))


@pytest.fixture
def kept(code: native.Code, compiled: Any, beside: Path) -> Path:
    native.store(code, compiled)
    return beside / code.kept_as


def files(*folders: Path) -> list[str]:
    return [path.name for folder in folders if folder.exists() for path in folder.iterdir()]


def loads(code: native.Code) -> bool:
    """Whether the code is loaded; if so it does what it should."""
    ready = native.load(code)
    assert ready is None or ready(VALUES).tolist() == [0, 2, 4, 6, 8]
    return ready is not None


def test_what_was_kept_is_loaded_and_nobody_else_can_read_it(code: native.Code, kept: Path) -> None:
    assert loads(code)
    assert files(kept.parent) == [kept.name]
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("part", ["module", "name", "source", "types"])
def test_code_of_another_kernel_is_not_loaded_under_this_name(code: native.Code, kept: Path, part: str) -> None:
    other = replace(code, **{part: "other"})
    kept.rename(kept.with_name(other.kept_as))
    assert not loads(other)
    assert files(kept.parent) == []


def load_bench(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("caches", root / "bench" / "caches.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["caches"] = made
    spec.loader.exec_module(made)
    return made


def damages() -> Iterator[Any]:
    for damage in load_bench(Path(__file__).resolve().parents[2]).DAMAGES:
        yield pytest.param(damage, id=damage.__name__)


@pytest.mark.parametrize("damage", list(damages()))
def test_damaged_code_is_removed_and_kept_again(
    code: native.Code, kept: Path, compiled: Any, damage: Callable[[Path, random.Random], None]
) -> None:
    native.store(replace(code, name="another"), compiled)
    damage(kept, random.Random(0))
    assert not loads(code)
    assert not os.path.lexists(kept)
    native.store(code, compiled)
    assert loads(code)


def test_a_folder_in_place_of_the_file_is_left_and_the_next_place_is_used(
    code: native.Code, compiled: Any, beside: Path, user: Path
) -> None:
    (beside / code.kept_as).mkdir(parents=True)
    assert not loads(code)
    native.store(code, compiled)
    assert files(user) == [code.kept_as]
    assert loads(code)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(
    code: native.Code, kept: Path, compiled: Any, user: Path, mode: int
) -> None:
    kept.parent.chmod(mode)
    assert not loads(code)
    native.store(code, compiled)
    assert files(user) == [kept.name]


def test_a_cache_folder_of_this_user_that_others_can_write_to_is_closed(code: native.Code, compiled: Any, user: Path) -> None:
    user.mkdir(parents=True)
    user.chmod(0o777)
    native.store(replace(code, file="module.py"), compiled)
    assert user.stat().st_mode & 0o777 == 0o700
    assert loads(replace(code, file="module.py"))


def test_a_folder_reached_through_a_link_is_not_used(
    code: native.Code, kept: Path, compiled: Any, user: Path, tmp_path: Path
) -> None:
    kept.parent.rename(tmp_path / "planted")
    kept.parent.symlink_to(tmp_path / "planted")
    user.parent.mkdir()
    user.symlink_to(tmp_path / "planted")
    assert not loads(code)
    native.store(replace(code, name="another"), compiled)
    assert files(tmp_path / "planted") == [kept.name]


def test_files_of_another_user_are_not_loaded(code: native.Code, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(kept, 65534, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    assert not loads(code)


def test_relative_paths_are_not_used(code: native.Code, compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", "home")
    here = replace(code, file="module/module.py")
    native.store(here, compiled)
    assert files(tmp_path / "module", tmp_path / "cache", tmp_path / "home") == []
    assert not loads(here)


def test_without_a_home_nothing_is_kept_but_beside_the_module(
    code: native.Code, kept: Path, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    assert loads(code)
    native.store(replace(code, file="module.py"), compiled)
    assert not loads(replace(code, file="module.py"))


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk_is_silent_and_leaves_nothing(
    code: native.Code, compiled: Any, beside: Path, user: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        native.store(code, compiled)
    assert files(beside, user) == []
    native.store(code, compiled)
    assert loads(code)


def test_an_interrupt_leaves_no_half_written_file(
    code: native.Code, compiled: Any, beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        native.store(code, compiled)
    assert files(beside) == []


def test_what_a_killed_process_left_half_written_is_removed(code: native.Code, kept: Path, compiled: Any) -> None:
    old, new = kept.with_name("old" + native.PART), kept.with_name("new" + native.PART)
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    native.store(code, compiled)
    assert sorted(files(kept.parent)) == sorted([kept.name, new.name])


def test_the_switch_turns_reading_and_writing_off(
    code: native.Code, kept: Path, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(native.SWITCH, "off")
    assert not loads(code)
    native.store(replace(code, name="another"), compiled)
    assert files(kept.parent) == [kept.name]


def test_threads_that_write_and_read_one_file_always_find_it_whole(code: native.Code, kept: Path, compiled: Any) -> None:
    def both(_: int) -> bool:
        native.store(code, compiled)
        return loads(code)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(both, range(40)))
    assert files(kept.parent) == [kept.name]


def test_what_only_llvm_can_load_is_loaded_by_it(code: native.Code, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "placed", lambda machine, symbol: None)
    native.store(code, compiled)
    assert loads(code)


def test_arguments_a_kernel_takes_have_a_signature() -> None:
    assert native.signature((np.zeros(3), np.zeros(2, np.int32), 4, 0.5)) == "d1,i1,x,d"
    assert native.signature((np.int64(1), np.float64(2))) == "x,d"


@pytest.mark.parametrize(
    "value",
    [np.zeros((4, 4))[:, 1], np.zeros(2, ">i8"), np.uint64(1), np.int32(1), np.float32(1), 1 << 63, True, "text"],
    ids=["strided", "other byte order", "uint64", "int32", "float32", "beyond int64", "truth value", "text"],
)
def test_values_whose_code_would_be_another_have_no_signature(value: Any) -> None:
    assert native.signature((value,)) is None


def test_a_few_damaged_files_in_a_whole_process(root: Path) -> None:
    """The short form of the benchmark: every file is looked at, none of them is loaded, and results are right."""
    command = [sys.executable, str(root / "bench" / "caches.py"), "--cases", "20", "--seed", "1", "--room", "graph"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 crashes, 0 wrong results, 20 removed or replaced, 0 left, 0 not looked at" in done.stdout
