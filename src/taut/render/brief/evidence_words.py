"""The evidence of findings as a briefing tells it: figures that it gives elsewhere are given once, and alike.

What findings say is what every verb prints. Of waiting that nobody causes they tell what a policy saves once all else is
mended, and how much later the job is in its episodes: here the one is of the clock as it was, the other has its index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from taut.render.brief.written import share
from taut.result.types import BriefCause, Finding

AVERAGE = re.compile(r", [\d,]+ times what ranks are late on average$")
MOST = re.compile(r"(?<= \d %) of it(?=, surely below \d+ %\)$)|(?<= \d\d %) of it(?=, surely below \d+ %\)$)")
SAVES = re.compile(r" would save [^;]*$")


def by_log(text: str, steps: Sequence[int], offset: int | None) -> str:
    """Evidence with the step in which it begins by the log, too."""
    told = f"from step {steps[0]} on" if steps else ""
    if offset is None or not told or not text.startswith(told):
        return text
    return f"from log step {steps[0] + offset:,} (traced step {steps[0]}) on{text[len(told) :]}"


def full_evidence(finding: Finding, cause: BriefCause | None, offset: int | None) -> str:
    """All of it."""
    if finding.loss_share is None:
        return by_log(finding.because, finding.steps, offset)
    return "; ".join(_clause(one, cause) for one in finding.because.split("; "))


def _clause(text: str, cause: BriefCause | None) -> str:
    text = MOST.sub(" of that, with all other findings mended", AVERAGE.sub("", text))
    if text.startswith("meeting every ") and cause is not None and cause.share is not None and cause.share_is == "recoverable":
        return SAVES.sub(f" gives back {share(cause.share)} of the clock", text)
    return text
