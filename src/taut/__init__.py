"""taut: where the accelerator bill really goes, why, and what would change it."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # not from typing: until this file is loaded, taut cannot handle an interrupt
if TYPE_CHECKING:
    from taut.billing import Bill, bill
    from taut.briefing.brief import Brief, brief
    from taut.compare.comparison import Comparison, compare
    from taut.control.relations import control
    from taut.core.errors import InputRefused, RunError, TautError, UsageError
    from taut.core.tables import Table, Trace
    from taut.diagnose.detectors import Evidence, Finding, diagnose
    from taut.forecasts import Projection, project
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
else:
    # Importing a room binds its name here, once. So the rooms that share a name with a verb are imported first and their
    # names taken away again: `taut.read` is then the function, and `from taut.read.load import ...` works as ever.
    from taut import compare, control, diagnose, project, read, replay

    del compare, control, diagnose, project, read, replay

_WHERE = {
    "Bill": "billing", "bill": "billing",
    "Brief": "briefing.brief", "brief": "briefing.brief",
    "Comparison": "compare.comparison", "compare": "compare.comparison",
    "control": "control.relations",
    "InputRefused": "core.errors", "RunError": "core.errors", "TautError": "core.errors", "UsageError": "core.errors",
    "Table": "core.tables", "Trace": "core.tables",
    "Evidence": "diagnose.detectors", "Finding": "diagnose.detectors", "diagnose": "diagnose.detectors",
    "Graph": "graph", "link": "graph.link",
    "Ledger": "ledger", "Prices": "ledger", "charge": "ledger.charge",
    "Projection": "forecasts", "project": "forecasts",
    "read": "read.trace",
    "Blame": "replay.blame", "blame": "replay.blame",
    "Change": "replay.timeline", "Timeline": "replay.timeline", "replay": "replay.timeline",
    "WhatIf": "replay.whatif", "whatif": "replay.whatif:decompose",
    "Analysis": "run", "Run": "run", "analyze": "run", "open_run": "run",
}  # fmt: skip

__all__ = [
    "Analysis", "Bill", "Blame", "Brief", "Change", "Comparison", "Evidence", "Finding", "Graph", "InputRefused", "Ledger",
    "Prices", "Projection", "Run", "RunError", "Table", "TautError", "Timeline", "Trace", "UsageError", "WhatIf", "analyze",
    "bill", "blame", "brief", "charge", "compare", "control", "diagnose", "link", "open_run", "project", "read", "replay",
    "whatif",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Public names are imported when first used: ``import taut`` stays fast."""
    if name not in _WHERE:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(f"taut.{module}"), attribute or name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
