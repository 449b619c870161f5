"""Words of art: each is explained once, where it first stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs, to_builtins

from taut.render.brief.document import Block, Document, Section, Terms

if TYPE_CHECKING:
    from taut.core.array_types import Json

MEANINGS: tuple[tuple[str, str, str], ...] = (
    (
        "effective throughput",
        r"effective throughput",
        "the share of what the accelerators could do that arrives as work that counts.",
    ),
    ("nominal", r"nominal", "how busy accelerators look: what a gauge shows."),
    ("rank", r"ranks?", "one process of the job, as a rule one per accelerator."),
    ("gate", r"gates?", "a place in the job where ranks wait until all the others have arrived."),
    ("straggler", r"stragglers?", "a rank that is later than the others and makes them wait."),
    ("exposed", r"exposed", "not hidden behind other work: the GPUs stand still for it."),
    ("jitter", r"jitter", "how much the same piece of work differs in length from one time to the next."),
    (
        "regime",
        r"regimes?",
        "how the whole behaves: stable or not, coherent or not.",
    ),
    (
        "reserve",
        r"reserve",
        "how many times as much variation between ranks still lets one more accelerator pay.",
    ),
    ("threshold", r"thresholds?", "the scale from which on one more accelerator brings too little to pay for itself."),
    (
        "critical path",
        r"critical paths?",
        "the chain of work that sets how long a step takes; only what lies on it is worth shortening.",
    ),
    ("coupling", r"couplings?|coupled", "how much a delay in one part delays the others."),
    ("operator graph", r"operator graphs?", "the job as pieces of work and what each has to wait for."),
    ("collective", r"collectives?", "an exchange of data in which all ranks of a group take part."),
    ("all-reduce", r"all-?reduces?", "the collective that adds up results of all ranks and gives each the sum."),
    ("checkpoint", r"checkpoints?", "a copy of the job's state from which it can go on after a failure."),
    ("spine", r"spines?", "the switches in the middle of the network that join its racks."),
    ("MFU", r"MFU", "model FLOPs utilisation: useful arithmetic over what the GPUs could do at most."),
    ("p99", r"p99(?:\.9)?", "the value that 99 of 100 cases stay below."),
    ("PUE", r"PUE", "power usage effectiveness: energy of the whole building over that of the machines."),
    ("FOCUS", r"FOCUS", "the open format in which cloud providers deliver their bills."),
    (
        "control loop",
        r"control loops?",
        "something that measures and then changes the system by itself, such as an autoscaler.",
    ),
    ("coherent", r"(?:in)?coherent", "of decisions: taken together they do not undo each other."),
    (
        "failure envelope",
        r"failure envelopes?",
        "how large, how uneven and how tightly synchronised the job may become before it no longer pays.",
    ),
    ("audit root", r"audit roots?", "one number that changes if any record of the audit log is changed."),
)
"""What is shown, what is looked for, what it means. Words in capitals are looked for as they are."""
NO_TEXT = frozenset({"type", "tone", "mark", "colour", "shape", "key", "command", "commands"})


def explained(document: Document) -> Document:
    """The same document, the words of art that first stand in a block beside it; page one has them all at its end."""
    known: set[str] = set()
    sections = [_section(section, known, i == 0) for i, section in enumerate(document.sections)]
    return structs.replace(document, sections=sections)


def _section(section: Section, known: set[str], gathered: bool) -> Section:
    blocks = [each for block in section.blocks for each in _block(block, known)]
    if gathered:
        terms = [term for block in blocks if isinstance(block, Terms) for term in block.terms]
        blocks = [*(block for block in blocks if not isinstance(block, Terms)), *([Terms(terms)] if terms else [])]
    return structs.replace(section, blocks=blocks)


def _block(block: Block, known: set[str]) -> Iterator[Block]:
    """The block and what it needs; of words that a section explains itself, those that no earlier one has."""
    if isinstance(block, Terms):
        terms = [(term, meaning) for term, meaning in block.terms if term.lower() not in known]
        known |= {term.lower() for term, _ in terms}
        if terms:
            yield Terms(terms)
        return
    new = [term for term in _found(" \n ".join(_texts(to_builtins(block)))) if term.lower() not in known]
    known |= {term.lower() for term in new}
    words: list[Block] = [Terms([(term, meaning) for term, _, meaning in MEANINGS if term in new])] if new else []
    yield from [block, *words]


def _found(text: str) -> list[str]:
    """The words of art in a text."""
    return [
        term
        for term, pattern, _ in MEANINGS
        if re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, 0 if term.isupper() else re.IGNORECASE)
    ]


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            if key not in NO_TEXT:
                yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
