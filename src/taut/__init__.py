"""taut: where the accelerator bill really goes, why, and what would change it."""

from __future__ import annotations

import sys
from types import ModuleType

__version__ = "0.1.0"

TYPE_CHECKING = False  # not from typing: until this file is loaded, taut cannot handle an interrupt
if TYPE_CHECKING:
    from typing import Any

    from taut.compare.comparison import compare
    from taut.control.relations import control
    from taut.core.errors import InputRefused, RunError, TautError, UsageError
    from taut.core.tables import Table, Trace
    from taut.graph import Graph
    from taut.graph.link import link
    from taut.ledger import Ledger, Prices
    from taut.ledger.charge import charge
    from taut.read.trace import read
    from taut.replay.blame import Blame, blame
    from taut.replay.timeline import Change, Timeline, replay
    from taut.replay.whatif import WhatIf
    from taut.replay.whatif import decompose as whatif
    from taut.run import Analysis, Run, analyze, open_run

_WHERE = {
    "compare": "compare",
    "control": "control",
    "InputRefused": "errors", "RunError": "errors", "TautError": "errors", "UsageError": "errors",
    "Graph": "graph", "link": "graph",
    "Ledger": "ledger", "Prices": "ledger", "charge": "ledger",
    "read": "read",
    "Blame": "replay", "Change": "replay", "Timeline": "replay", "WhatIf": "replay", "blame": "replay",
    "replay": "replay",
    "whatif": "replay:decompose",
    "Analysis": "run", "Run": "run", "analyze": "run", "open_run": "run",
    "Table": "tables", "Trace": "tables",
}  # fmt: skip

__all__ = [
    "Analysis", "Blame", "Change", "Graph", "InputRefused", "Ledger", "Prices", "Run", "RunError", "Table", "TautError",
    "Timeline", "Trace", "UsageError", "WhatIf", "analyze", "blame", "charge", "compare", "control", "link", "open_run", "read",
    "replay", "whatif",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are imported when first used: ``import taut`` stays fast."""
    if name not in _WHERE:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _WHERE[name].partition(":")
    found = import_module(f"taut.{module}")
    return found if module == name else getattr(found, attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _Room(ModuleType):
    """A room that bears the name of its verb is called like it: ``taut.read(paths)``."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **options)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # Loading taut.read or taut.replay puts the room where the verb of that name is looked for.
        if isinstance(value, ModuleType) and name in _WHERE:
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
