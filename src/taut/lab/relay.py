"""A cable in userspace: TAP ``eth0`` of a rank ↔ TAP port of the switch, with delay, jitter and loss set while it runs.

Run as ``python -m taut.lab.relay PID PORT BRIDGE MTU`` in the switch; every line on standard input sets
``delay_ms jitter_ms loss``; it ends with its input. For kernels without netem, and without any rule left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

SET_INTERFACE, TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
NEW_NET = 0x40000000
BURST = 64


def _tap(name: str, mtu: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, SET_INTERFACE, struct.pack("16sH14x", name.encode(), TAP_WITHOUT_HEADER))
    subprocess.run(["ip", "link", "set", name, "mtu", mtu, "txqueuelen", "4000"], check=True)
    return fd


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def main(pid: str, port: str, bridge: str, mtu: str) -> None:
    """Pass packets both ways until standard input closes."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    _enter(there)
    near = _tap("eth0", mtu)
    _enter(home)
    os.close(there)
    far = _tap(port, mtu)
    subprocess.run(["ip", "link", "set", port, "master", bridge], check=True)
    print("ready", flush=True)
    _pass_on({near: far, far: near})


def _pass_on(other: dict[int, int]) -> None:
    delay = jitter = loss = 0.0
    rng = random.Random(1)
    queue: list[tuple[float, int, int, bytes]] = []
    latest = dict.fromkeys(other, 0.0)
    count, control = 0, sys.stdin.fileno()
    while True:
        wait = max(queue[0][0] - time.monotonic(), 0) if queue else None
        ready = select.select([control, *other], [], [], wait)[0]
        if control in ready:
            line = sys.stdin.readline()
            if not line:
                return
            delay, jitter, loss = (float(x) / scale for x, scale in zip(line.split(), (1e3, 1e3, 1), strict=True))
        for fd in set(ready) - {control}:
            for packet in _packets(fd):
                if loss and rng.random() < loss:
                    continue
                due = time.monotonic() + delay + (abs(rng.gauss(0, jitter)) if jitter else 0)
                latest[fd] = due = max(due, latest[fd])  # a queue: packets are late, never out of order
                count += 1
                heapq.heappush(queue, (due, count, other[fd], packet))
        while queue and queue[0][0] <= time.monotonic():
            _, _, fd, packet = heapq.heappop(queue)
            with contextlib.suppress(OSError):  # a full or closing interface drops packets, as cables do
                os.write(fd, packet)


def _packets(fd: int) -> list[bytes]:
    packets = []
    for _ in range(BURST):
        try:
            packets.append(os.read(fd, 65536))
        except OSError:
            break
    return packets


if __name__ == "__main__":
    main(*sys.argv[1:5])
