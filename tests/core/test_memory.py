"""What libraries take of the memory of a process of taut."""

from __future__ import annotations

import gc
import subprocess
import sys

from taut.core import memory

ASKED = """
import sys
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
