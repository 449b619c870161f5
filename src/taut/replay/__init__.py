"""Graph + changes → Timeline: replay, what-if, blame."""

from taut.replay.blame import Blame, Wait, blame
from taut.replay.timeline import Batch, Change, Timeline, batch, replay
from taut.replay.whatif import WhatIf, decompose, dimensions

__all__ = [
    "Batch",
    "Blame",
    "Change",
    "Timeline",
    "Wait",
    "WhatIf",
    "batch",
    "blame",
    "decompose",
    "dimensions",
    "replay",
]
