"""Answers in an exported file, where nothing is replayed: findings and top choices fixed, a grid of scales, policies."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from taut.core.errors import TautError
from taut.result.view_types import Answer, PackedAnswers, Questions
from taut.views.replays import Question, Replays
from taut.views.run_questions import answer, canonical, question, questions

WORK, BANDWIDTH = ("0.8", "0.9", "1", "1.1", "1.2"), ("0.5", "1", "2", "4", "8")
"""Factors of the grid."""
TOP = 12
"""Choices of a kind that have an answer."""
VISITS = 200_000_000
"""Op visits that all answers together may cost."""
POLICY_OPS = 200_000
"""Ops up to which policies are tried: a policy diagnoses the run again."""
MOST_BYTES = 1 << 20
"""What all of it may take as JSON; what comes last is left out."""


def packed_answers(replays: Replays, most_bytes: int = MOST_BYTES) -> PackedAnswers:
    """What can be asked, and answers by the canonical text of their question, the most useful first until the room is full."""
    asked = questions(replays)
    told, room, left_out = dict[str, Answer](), most_bytes - len(msgspec.json.encode(asked)), 0
    budget = max(VISITS // max(len(replays.graph), 1), 20)
    for one in _worth(replays, asked):
        key = canonical(one)
        if key in told:
            continue
        found = _answered(replays, one) if len(told) < budget and room > 0 else None
        size = 0 if found is None else len(msgspec.json.encode(found)) + len(key.encode()) + 4
        if found is None or size > room:
            left_out += 1
        else:
            told[key], room = found, room - size
    return PackedAnswers(
        questions=asked, answers=told, work=[*map(float, WORK)], bandwidth=[*map(float, BANDWIDTH)], left_out=left_out
    )


def _answered(replays: Replays, one: Question) -> Answer | None:
    """An answer; None where the run refuses the question."""
    try:
        return answer(replays, one)
    except TautError:
        return None


def _worth(replays: Replays, asked: Questions) -> Iterator[Question]:
    """The questions that have an answer, the most useful first."""
    yield question()
    findings = asked.choices.get("finding", [])
    yield from (question(one.fixes) for one in findings)
    if len(findings) > 1:
        yield question(dict.fromkeys(fix for one in findings for fix in one.fixes))
    yield from (question(scales=_scales(work, bandwidth)) for work in WORK for bandwidth in BANDWIDTH)
    yield question(scales={"gaps": "0"})
    yield question(scales={"gaps": "0.5"})
    if len(replays.graph) <= POLICY_OPS:
        yield from (question(policies=[f"{one.name}={v}"]) for one in asked.policies for v in one.values[:2])
        yield from (question(policies=[one.name]) for one in asked.policies if not one.values)
    for kind, some in asked.choices.items():
        yield from (question(one.fixes) for one in some[:TOP] if kind != "finding")


def _scales(work: str, bandwidth: str) -> dict[str, str]:
    """Factors that change something."""
    return {key: value for key, value in (("work", work), ("bandwidth", bandwidth)) if value != "1"}
