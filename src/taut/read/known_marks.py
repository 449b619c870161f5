"""How programs mark their iterations: one table of the names that profilers, frameworks and servers write.

The names are facts of those programs: vLLM's worker writes how many requests it prefills and generates for, SGLang the mode
of the forward pass, TensorRT-LLM's executor its iteration and both counts, Lightning and DeepSpeed the method that runs.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from taut.core.tables import NULL

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"


class Edge(Enum):
    """What of a step a range shows."""

    SPAN = "most of it"
    BEGIN = "its first part"
    END = "its last part"


class Family(Struct, frozen=True):
    """Ranges by which one program shows its iterations; names are matched from their beginning."""

    name: str
    pattern: re.Pattern[str]
    edge: Edge = Edge.SPAN
    least: int = 2
    """Ranges that are enough to believe in a loop."""


class Known(NamedTuple):
    """What a name says: its number, -1 for none, its phase, and the mode of a server's forward pass."""

    number: int = NULL
    phase: str = ""
    mode: str = ""


def _family(name: str, pattern: str, edge: Edge = Edge.SPAN, least: int = 2) -> Family:
    return Family(name, re.compile(pattern), edge, least)


PROFILER = _family("ProfilerStep", r"ProfilerStep#(?P<number>\d{1,9})$")
SERVERS = (
    _family("vLLM", r"(?:execute_)?(?:\d+_)?context_(?P<prefill>\d+)\([^)]*\)_generation_(?P<decode>\d+)\(", least=1),
    _family("SGLang", r"step\[(?P<mode>[A-Z][A-Z_0-9]+)[ \]]", least=1),
    _family(
        "TensorRT-LLM",
        r"\[Executor\] _forward_step(?: (?P<number>\d{1,9}))?: (?P<prefill>\d+) ctx reqs,(?: \d+ ctx tokens,)?"
        r" (?P<decode>\d+) gen reqs",
        least=1,
    ),
)
WRITTEN = (
    *SERVERS,
    PROFILER,
    _family("Lightning", r"(?:\[pl\]\[profile\])?(?:\[\w+\]\.?)?run_training_batch$"),
    _family("DeepSpeed batch", r"(?:DeepSpeed|Pipeline)Engine\.(?:train|eval)_batch$"),
    _family(
        "prefill and decode",
        r"(?:\w+[ _.:/])?(?P<word>[Pp]refill|[Dd]ecode|PREFILL|DECODE)"
        r"(?:[ _-]?(?:step|iter|iteration|forward|token))?[ _#:-]*(?:\d{1,9})?$",
        least=3,
    ),
    _family("vLLM forward", r"(?:v\d_)?gpu_model_runner: forward$"),
    _family("vLLM execute_model", r"(?:\w+\.)*execute_model$"),
)
"""Marks of iterations, the surest first."""
IMPLIED = (
    _family("optimiser", r"Optimizer\.step#", Edge.END, 3),
    _family("DeepSpeed forward", r"DeepSpeedEngine\.forward$", Edge.BEGIN, 3),
    _family("data loader", r"enumerate\(DataLoader\)#", Edge.BEGIN, 3),
)
"""What happens once an iteration, and shows where it ends or begins where nobody marked it."""
OPTIMISER = re.compile(r"Optimizer\.step#|(?:DeepSpeed\w*Optimizer\w*|DeepSpeedEngine)\.step$")
_MODES = {
    "EXTEND": PREFILL, "PREFILL": PREFILL, "SPLIT_PREFILL": PREFILL, "DECODE": DECODE, "TARGET_VERIFY": DECODE, "MIXED": MIXED,
}  # fmt: skip
# A server that speculates runs its draft model between two verifications: then these are parts of a step.
VERIFY, DRAFTS = "TARGET_VERIFY", ("DECODE", "DRAFT_EXTEND", "DRAFT_EXTEND_V2")


def known(family: Family, name: str) -> Known | None:
    """What a name says if it is one of this family."""
    found = family.pattern.match(name)
    if found is None:
        return None
    parts = found.groupdict()
    number = int(parts["number"]) if parts.get("number") else NULL
    if parts.get("mode"):
        return Known(number, _MODES.get(parts["mode"], ""), parts["mode"])
    if parts.get("word"):
        return Known(number, parts["word"].lower())
    return Known(number, _phase(parts.get("prefill"), parts.get("decode")))


def tells_phase(name: str) -> bool:
    """Whether a name is one of a server that tells its phase."""
    return any(family.pattern.match(name) for family in SERVERS)


def _phase(prefill: str | None, decode: str | None) -> str:
    """The phase of a step with so many requests of each kind."""
    some = (int(prefill or 0) > 0, int(decode or 0) > 0)
    return {(True, False): PREFILL, (False, True): DECODE, (True, True): MIXED}.get(some, "")
