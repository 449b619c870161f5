"""What a thread waited for a core, by Linux's account, as long as no quota of its own takes time."""

from __future__ import annotations

import pytest

from taut.watch.core_waits import CoreWaits

SECOND = 1_000_000_000


class Account:
    """Linux, as the test wants it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waited = self.throttled = 0
        monkeypatch.setattr("taut.watch.core_waits.os.pread", lambda *_: b"1 %d 1\n" % self.waited)
        monkeypatch.setattr("taut.watch.core_waits.throttled_ns", lambda _: self.throttled)


def test_what_was_waited_since_it_was_last_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(monkeypatch)
    waits = CoreWaits()
    waits.since_last(1)
    account.waited += 7_000_000
    assert waits.since_last(2) == 7_000_000
    assert waits.since_last(3) == 0


def test_under_a_quota_that_takes_time_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account(monkeypatch)
    waits = CoreWaits()
    waits.since_last(1)
    account.waited, account.throttled = 40_000_000, 30_000_000
    assert waits.since_last(3 * SECOND) == 0


def test_where_nobody_keeps_account_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr("taut.watch.core_waits.os.open", no_file)
    assert CoreWaits().since_last(1) == 0
