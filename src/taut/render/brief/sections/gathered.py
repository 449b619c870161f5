"""Blocks of several inputs in one section, with the commands of those that told something."""

from __future__ import annotations

from collections.abc import Iterable

from taut.render.brief.document import Block, Empty


def gathered(parts: Iterable[tuple[Iterable[Block], str]]) -> tuple[list[Block], list[str]]:
    """(all blocks, the commands of inputs that have more to show than what is missing) of (blocks, command) of inputs."""
    blocks: list[Block] = []
    commands: list[str] = []
    for some, command in parts:
        found = list(some)
        blocks += found
        if any(not isinstance(one, Empty) for one in found):
            commands.append(command)
    return blocks, commands
