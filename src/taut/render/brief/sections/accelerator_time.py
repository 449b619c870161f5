"""Where the accelerator time goes: every part of it, and why shares that sound alike differ."""

from __future__ import annotations

from taut.render.brief.document import Block, Section, Text
from taut.render.brief.split_time import split_table
from taut.render.brief.useful_shares import useful_shares
from taut.result.brief_types import Briefing

CLOCK = (
    "Two measures stand side by side. Shares of accelerator time, as here, add up to 100 %. What a cause costs (page one) is a "
    "share of the time on the clock, and several do not add up. An example: if one of {ranks} ranks takes a second longer in "
    "a step, the clock loses that second once; in accelerator time it is {others} of waiting by the others and 1 s of slow "
    "compute by the late one. So the clock may lose more to lateness than the part “waiting” alone shows."
)


def accelerator_time(briefing: Briefing) -> Section | None:
    """Of runs; scenarios have theirs where the money goes."""
    if not briefing.runs:
        return None
    blocks: list[Block] = [*split_table(briefing)]
    ranks = briefing.runs[0].result.job.ranks
    if blocks and ranks > 1 and briefing.causes:
        blocks.append(Text(CLOCK.format(ranks=f"{ranks:,}", others=f"{ranks - 1:,} s")))
    blocks += useful_shares(briefing)
    commands = [one.command for one in briefing.inputs if one.kind in ("run", "bill")]
    return Section("time", "Where the accelerator time goes", blocks, commands) if blocks else None
