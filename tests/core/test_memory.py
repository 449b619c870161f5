"""What libraries take of the memory of a process of taut."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from taut.core import memory

ASKED = """
import sys
from pathlib import Path

import pytest
from taut.core import memory

memory.fit()
import pyarrow as pa

pa.array([1]).to_numpy()
print(pa.default_memory_pool().backend_name, "pandas" in sys.modules)
"""


def test_arrow_keeps_no_memory_and_loads_no_data_frames() -> None:
    told = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["system", "False"]


def test_garbage_is_looked_for_again_after_modules_are_loaded() -> None:
    with memory.loading():
        assert not gc.isenabled()
        with memory.loading():  # one that has its own imports
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()


def test_what_control_groups_leave_counts_up_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for group, most, used in (("", "max", 0), ("slice", "3000000", 1_000_000), ("slice/job", "9000000", 500_000)):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / "memory.max").write_text(f"{most}\n")
        (tmp_path / group / "memory.current").write_text(f"{used}\n")
    listed = tmp_path / "cgroup"
    listed.write_text("1:cpu:/elsewhere\n0::/slice/job\n")
    real = Path.read_text
    monkeypatch.setattr(memory, "GROUPS", (("", tmp_path, "memory.max", "memory.current"),))
    monkeypatch.setattr(Path, "read_text", lambda one, **how: real(listed if str(one) == "/proc/self/cgroup" else one, **how))
    assert memory.available_bytes() == 2_000_000
