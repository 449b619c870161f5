"""Start a lab's host process, give it specs, and leave nothing behind, however this process ends.

The host and its ranks live in a process namespace of their own that the kernel empties when its first process dies; that
one dies with us. Network namespaces have no names and go with their processes. The one thing that has a name, the
control group, is removed by a small shell process that outlives us by a moment.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import msgspec

from taut.core.errors import RunError, TautError
from taut.lab import plain_job, truth
from taut.lab.case import PLAIN_JOB, Spec
from taut.lab.host import Answer

TOOLS = ("ip", "tc", "unshare", "nsenter", "setpriv")
_GUARD = 'trap "" INT TERM HUP; cat >/dev/null; for i in 1 2 3 4 5 6 7 8 9; do rmdir "$1" 2>/dev/null && exit; sleep 0.3; done'


def missing(device: str = "cpu") -> str | None:
    """Why no lab can run here, in one line with the remedy; None if one can."""
    if sys.platform != "linux":
        return "the lab needs Linux (network namespaces, cgroups)"
    if device != "cpu":
        return _no_gpu()
    if os.geteuid() != 0:
        return "the lab needs root (network namespaces, cgroups); run it with sudo or in a container"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"the lab needs {', '.join(absent)}; install iproute2 and util-linux"
    if importlib.util.find_spec("torch") is None:
        return "the lab needs torch; install it with: pip install 'taut[lab]'"
    return None


def _no_gpu() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "the lab needs torch; install it with CUDA, as pytorch.org says"
    import torch

    if torch.cuda.is_available():
        return None
    built = "there is no CUDA device" if torch.version.cuda else "this torch is built without CUDA"
    return f"--device cuda: {built}; run it on a machine with an NVIDIA GPU and a torch for it, or with --device cpu"


class Lab:
    """A place to run jobs in; use it as a context manager.

    On a GPU ranks are plain processes on this machine's own network: nothing here needs root, a namespace or a control group.
    """

    def __init__(self, device: str = "cpu") -> None:
        why = missing(device)
        if why:
            raise TautError(why)
        self._cgroup = _cgroup_root() / f"taut-lab-{uuid.uuid4().hex[:12]}" if device == "cpu" else None
        self._library = tempfile.mkdtemp(prefix="taut-lab-")
        self._guard: subprocess.Popen[bytes] | None = None
        self._can_skew = False

    def __enter__(self) -> Lab:
        environment = {"TORCH_FR_BUFFER_SIZE": "20000", **os.environ, "KINETO_LOG_LEVEL": "5"}
        command = [sys.executable, "-m", "taut.lab.host", str(self._cgroup or "")]
        if self._cgroup is not None:
            self._cgroup.mkdir()
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", str(self._cgroup)], stdin=subprocess.PIPE, start_new_session=True
            )
            self._can_skew = _compiled(Path(self._library))
            if self._can_skew:
                environment["LD_PRELOAD"] = f"{self._library}/skew.so"
            alone = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
            command = ["setpriv", "--pdeathsig", "KILL", *alone, *command]
        else:
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        self._log = (Path(self._library) / "host.log").open("w+b")
        self._host = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )
        self._expect("ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._host.kill()
        self._host.communicate()
        self._log.close()
        if self._guard is not None:
            assert self._guard.stdin is not None
            self._guard.stdin.close()
            self._guard.wait()
        shutil.rmtree(self._library, ignore_errors=True)

    def _expect(self, word: str) -> None:
        line = self._line()
        if line != word:
            raise TautError(f"the lab did not start: {line[:200] or self._last_words()}")

    def _line(self) -> str:
        assert self._host.stdout is not None
        for line in self._host.stdout:
            if line.startswith(("{", "ready")):
                return line.strip()
        return ""

    def _last_words(self) -> str:
        self._host.wait(5)
        lines = (Path(self._library) / "host.log").read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"

    def run(self, spec: Spec) -> float:
        """One lab run into ``spec.folder``; returns how long it took, s."""
        spec.check()
        if spec.fault == "skew" and not self._can_skew:
            raise TautError("--fault skew needs a C compiler (cc) to build the clock shim; install gcc")
        _refuse_foreign(Path(spec.folder))
        assert self._host.stdin is not None
        self._host.stdin.write(msgspec.json.encode(spec).decode() + "\n")
        self._host.stdin.flush()
        line = self._line()
        if not line:
            raise TautError(f"the lab's host process ended: {self._last_words()}")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise TautError(f"{spec.job} with {spec.fault}, seed {spec.seed}: {answer.error}")
        return answer.seconds


class Runner:
    """Runs specs of any kind: a lab is made when the first spec needs one, plain processes need none; a context manager."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        self._open = ExitStack()
        self._lab: Lab | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.close()

    def run(self, spec: Spec) -> float:
        """One run into ``spec.folder``; returns how long it took, s."""
        if spec.job == PLAIN_JOB:
            spec.check()
            if sys.platform != "linux":
                raise TautError("the lab needs Linux")
            _refuse_foreign(Path(spec.folder))
            return plain_job.run(spec)
        if self._lab is None:
            self._lab = self._open.enter_context(Lab(self._device))
        return self._lab.run(spec)


def _refuse_foreign(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / truth.TRUTH).exists():
        raise RunError(f"{folder}: exists and is no lab run; give another -o")


def _cgroup_root() -> Path:
    for path in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"):
        if (Path(path) / "cpu.cfs_quota_us").exists() or (Path(path) / "cgroup.procs").exists():
            return Path(path)
    return Path("/sys/fs/cgroup")


def _compiled(folder: Path) -> bool:
    """Build the clock shim; False without a compiler."""
    source = Path(__file__).with_name("skew.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return False
    done = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(folder / "skew.so"), str(source)], check=False)
    return done.returncode == 0
