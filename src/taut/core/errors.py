"""The error tree.

TautError                 anything taut says about a failure; the CLI prints one line, never a traceback
├── InputRefused          exit 4: the input cannot be used; the message names file, place and remedy
│   ├── TooLarge          a cap was reached (depth, ratio, size, members, memory)
│   └── NotATrace         no reader knows this format
├── RunError              a run folder is missing, incomplete or from another version
├── AuditError            the audit log cannot be read, written or signed
│   └── DamagedLog        exit 5: what the log holds is not what was recorded
└── UsageError            exit 2: the question itself does not fit the data (an unknown rank, a bad price)
"""

from __future__ import annotations


class TautError(Exception):
    """Base of everything taut raises on purpose. ``exit_code`` is what the CLI returns."""

    exit_code = 1


class InputRefused(TautError):
    """The input cannot be used: says where, why, and what to do about it."""

    exit_code = 4

    def __init__(self, where: object, why: str, remedy: str = "") -> None:
        self.where, self.why, self.remedy = str(where), why, remedy
        super().__init__(f"{self.where}: {why}" + (f"; {remedy}" if remedy else ""))

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.where, self.why, self.remedy)


class TooLarge(InputRefused):
    """A cap was reached before the input could exhaust the machine."""


class NotATrace(InputRefused):
    """No reader recognises this input."""


class RunError(TautError):
    """A run folder is missing, incomplete, or was written by another version."""


class AuditError(TautError):
    """The audit log cannot be read, written or signed."""


class DamagedLog(AuditError):
    """What an audit log holds is not what was recorded."""

    exit_code = 5


class UsageError(TautError):
    """The question does not fit the data, for example a rank that is not in the run."""

    exit_code = 2
