"""What a rank of the lab notices of itself (``taut.watch``), kept in a file as its collector would have received it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.wire import EVENT

EVERY_S = 1.0
"""As often as a sender sends."""
FOLDER = "watch"


class Watched:
    """Watches this process until it is stopped: a thread writes what is in the ring."""

    def __init__(self, folder: Path, rank: int, host: str) -> None:
        self.observer = Observer(Ring())
        self.folder, self.rank, self.host = folder / FOLDER, rank, host
        self.folder.mkdir(exist_ok=True)
        self.sees = self.observer.attach()
        self._done = threading.Event()
        self._sent: list[tuple[int, int]] = []
        self._events = (self.folder / f"rank{rank}.bin").open("wb")
        self._thread = threading.Thread(target=self._send, name="taut-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write the rest."""
        self._done.set()
        self._thread.join(5)

    def _send(self) -> None:
        while not self._done.wait(EVERY_S):
            self._once()
        self._once()

    def _once(self) -> None:
        with self.observer.quietly():
            self.observer.beat()
        data = self.observer.ring.take(1 << 16)
        self._events.write(data)
        self._events.flush()
        self._sent.append((time.monotonic_ns(), len(data) // EVENT.size))
        about = {
            "rank": self.rank, "host": self.host, "sees": self.sees, "places": self.observer.places, "sent": self._sent,
            "dropped": self.observer.ring.dropped, "faults": self.observer.faults,
        }  # fmt: skip
        scratch = self.folder / f"rank{self.rank}.partial"
        scratch.write_text(json.dumps(about))
        scratch.replace(self.folder / f"rank{self.rank}.json")
