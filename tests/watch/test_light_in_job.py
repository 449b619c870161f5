"""What runs in jobs of other people needs the standard library alone, until it is started."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
import sys

class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "pyarrow", "msgspec", "numba", "scipy", "click", "rich", "torch"):
            raise ImportError(f"{name} is not for jobs")

sys.meta_path.insert(0, Refuses())
import taut.watch, taut.watch.wire, taut.watch.event_ring, taut.watch.observed, taut.watch.sender, taut.watch.in_job
print(taut.watch.start("nowhere"), taut.watch.start("127.0.0.1:1"), taut.watch.start("127.0.0.1:1", secret="x" * 16))
taut.watch.step()
taut.watch.stop()
"""


def test_in_job_files_need_no_packages() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_WATCH")}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True, env=env)
    assert done.stdout == "False False False\n"
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["taut.watch is off"] * 3
