"""The network of a lab: every rank in a network namespace of its own, joined by a bridge in the host's.

The namespaces have no names: they live as long as the processes in them, so nothing is left behind whatever happens.
The lab's host process itself lives in a namespace of its own (see ``host.py``), which is the switch.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import NoReturn

from taut.core.errors import TautError
from taut.lab.truth import Injected

NEW_NET, NEW_UTS = 0x40000000, 0x04000000
BRIDGE, MTU, MOST_RANKS = "br0", 9000, 64
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends, where no process namespace does that."""
    _libc.prctl(1, signal.SIGKILL)


def address(rank: int) -> str:
    """The rank's address inside the lab."""
    return f"10.77.0.{rank + 1}"


def _do(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TautError(f"lab network: {' '.join(command)}: {done.stderr.strip()[:200]}")


def switch() -> None:
    """Make this process's namespace the switch of a lab."""
    _do("ip", "link", "set", "lo", "up")
    _do("ip", "link", "add", BRIDGE, "mtu", str(MTU), "type", "bridge")
    _do("ip", "link", "set", BRIDGE, "up")
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as hosts:
        hosts.writelines(f"{address(rank)} node{rank}\n" for rank in range(MOST_RANKS))
        hosts.flush()
        # Seen by this lab alone (it has a mount namespace too); without it every connection waits for a name server.
        _do("mount", "--bind", hosts.name, "/etc/hosts")


class Loopback:
    """The place of a rank that shares the machine's network."""

    def enter(self, name: str) -> None:
        """Nothing to enter, and the host has its name; the rank must not outlive the lab all the same."""
        die_with_parent()


class Socket:
    """A place in the network that ranks of one run after another enter: a namespace with an interface and a host name.

    Kept by a process that sleeps, because the kernel takes seconds to clear a namespace away. With ``relayed`` the cable
    goes through a userspace relay that can delay and lose packets (see ``relay.py``).
    """

    def __init__(self, rank: int, relayed: bool) -> None:
        ready, notify = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _keep(rank, notify)
        os.read(ready, 1)
        os.close(ready)
        os.close(notify)
        self.port = f"p{rank}{'r' if relayed else ''}"
        self.relay = self._relayed() if relayed else None
        if not relayed:
            peer = ["type", "veth", "peer", "name", "eth0", "mtu", str(MTU), "netns", str(self.pid)]
            _do("ip", "link", "add", self.port, "mtu", str(MTU), *peer)
            _do("ip", "link", "set", self.port, "master", BRIDGE)
        # One hardware address per rank, whichever its cable: the others remember it.
        _do(*self.inside, "ip", "link", "set", "eth0", "address", f"02:00:00:00:00:{rank:02x}")
        _do(*self.inside, "ip", "addr", "add", f"{address(rank)}/24", "dev", "eth0")
        _do(*self.inside, "ip", "link", "set", "eth0", "up")

    def _relayed(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "taut.lab.relay", str(self.pid), self.port, BRIDGE, str(MTU)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise TautError("lab network: the relay did not start (is /dev/net/tun there?)")
        return process

    @property
    def inside(self) -> list[str]:
        """Prefix of a command that is to run in this namespace."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net"]

    def plug(self, cores: Iterable[int]) -> None:
        """Called in the switch: connect the cable; what relays it has the cores of the run."""
        if self.relay is not None:
            os.sched_setaffinity(self.relay.pid, cores)
        _do("ip", "link", "set", self.port, "up")

    def unplug(self) -> None:
        """Called in the switch: disconnect the cable."""
        _do("ip", "link", "set", self.port, "down")

    def disturb(self, delay_ms: float = 0, jitter_ms: float = 0, loss: float = 0) -> None:
        """Have the relay delay and lose packets; without arguments, no more."""
        assert self.relay is not None
        assert self.relay.stdin is not None
        self.relay.stdin.write(f"{delay_ms} {jitter_ms} {loss}\n")
        self.relay.stdin.flush()

    def enter(self, name: str) -> None:
        """Called in a rank: move there, and call the place by the name of its host."""
        for kind, flag in (("net", NEW_NET), ("uts", NEW_UTS)):
            fd = os.open(f"/proc/{self.pid}/ns/{kind}", os.O_RDONLY)
            if _libc.setns(fd, flag) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(fd)
        socket.sethostname(name)
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"


def _keep(rank: int, notify: int) -> NoReturn:
    """Called in the process that keeps a namespace: never returns."""
    try:
        if _libc.unshare(NEW_NET | NEW_UTS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        socket.sethostname(f"node{rank}")
        _do("ip", "link", "set", "lo", "up")
        os.write(notify, b".")
        while True:
            signal.pause()
    finally:
        os._exit(1)


def slow(fault: Injected, sockets: list[Socket]) -> None:
    """Called in the switch: limit the bandwidth of a rank's interface both ways, or of one directed link."""
    rate = f"{fault.strength['mbit']}mbit"
    if fault.fault == "link":
        place = sockets[fault.ranks[0]]
        shape = ["root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms"]
        _do(*place.inside, "tc", "qdisc", "replace", "dev", "eth0", *shape)
        _do("tc", "qdisc", "replace", "dev", place.port, *shape)
        return
    sender, receiver = map(int, fault.links[0].split(":"))
    tc = [*sockets[sender].inside, "tc"]
    bursts = ["burst", "64kb", "cburst", "64kb"]
    _do(*tc, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
    _do(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", "20gbit")
    _do(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:2", "htb", "rate", rate, *bursts)
    match = ["match", "ip", "dst", f"{address(receiver)}/32"]
    _do(*tc, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "u32", *match, "flowid", "1:2")


def restore(fault: Injected, sockets: list[Socket]) -> None:
    """Called in the switch: undo ``slow``."""
    place = sockets[fault.ranks[0] if fault.fault == "link" else int(fault.links[0].split(":")[0])]
    _do(*place.inside, "tc", "qdisc", "del", "dev", "eth0", "root")
    if fault.fault == "link":
        _do("tc", "qdisc", "del", "dev", place.port, "root")
