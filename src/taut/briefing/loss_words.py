"""Fates of the ledger and of attempts in plain words, and what helps against each."""

from __future__ import annotations

FATE_WORDS = {
    "exposed transfer": ("moving data while nothing else runs", "overlap it with work, or buy bandwidth"),
    "communication undivided": ("communication, of which one side was traced", "trace all ranks, to see who is waited for"),
    "slow compute": ("work that takes longer than the same work elsewhere", "look at the ranks that taut analyze lists first"),
    "structural wait": ("waiting that the schedule itself makes", "balance the stages, or change the schedule"),
    "jitter wait": ("waiting for whoever happens to be late", "meet less often: taut whatif RUN --advice"),
    "gap": ("accelerators that wait for their host", "look at input, launches and checkpoints on the hosts"),
    "exposed copy": ("copies between host and accelerator while nothing else runs", "copy ahead of need, from pinned memory"),
}  # fmt: skip
"""Fate of the ledger → what it is in plain words, and what is done about it."""
ATTEMPT_WORDS = {
    "discarded": ("work that was done and thrown away", "save checkpoints more often, and find what ends attempts"),
    "discarded at most": (
        "work of ended attempts, thrown away at most", "log the step of each checkpoint, and find what ends attempts",
    ),
    "checkpoint save": ("accelerators that wait for checkpoints", "save in the background, or less often"),
    "restore": ("accelerators that wait while a job is restored", "keep checkpoints near, and restore in parallel"),
    "hold/init": ("accelerators held before the first step", "start hosts and load data before accelerators are taken"),
    "detect+recover": ("accelerators that wait until a failure is noticed", "shorten timeouts, and keep a spare"),
}  # fmt: skip
"""Fate of attempts → the same."""
