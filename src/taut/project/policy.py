"""Policies: named changes of a scenario, with or without a value, and the check of that value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from taut.core.errors import UsageError
from taut.core.strict_toml import Strict
from taut.project.about import About


class Described(Protocol):
    """What every scenario has, whatever it describes."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def about(self) -> About:
        """What it is for, and the policies it is compared with."""


S = TypeVar("S", bound=Described)
File = TypeVar("File", bound=Strict)
Value = bool | int | float | str | tuple[int, ...]


@dataclass(frozen=True)
class Policy(Generic[S]):
    """A change of a scenario, by name: ``--policy local-steps=8``."""

    name: str
    says: str
    """What it does, in a line."""
    apply: Callable[[S, float | None], S]
    """Scenario and the value given, if any → scenario."""
    costs: str = ""
    """What it costs convergence, or risks; empty where it has no such price."""


def number(
    name: str, default: float, low: float, high: float, says: str, costs: str, change: Callable[[S, float], S]
) -> Policy[S]:
    """A policy that takes a number between two, or its default."""

    def apply(s: S, value: float | None) -> S:
        value = default if value is None else value
        if not low <= value <= high:
            raise UsageError(f"--policy {name}={value:g}: give a number from {low:g} to {high:g}")
        return change(s, value)

    return Policy(name, says, apply, costs)


def whole_number(
    name: str, default: Callable[[S], int], low: int, high: int, says: str, costs: str, change: Callable[[S, int], S]
) -> Policy[S]:
    """A policy that takes a whole number between two, or one that follows from the scenario."""

    def apply(s: S, value: float | None) -> S:
        if value is not None and not (low <= value <= high and value == int(value)):
            raise UsageError(f"--policy {name}={value:g}: give a whole number from {low} to {high}")
        return change(s, default(s) if value is None else int(value))

    return Policy(name, says, apply, costs)


def switch(name: str, says: str, costs: str, change: Callable[[S], S]) -> Policy[S]:
    """A policy that takes no value."""

    def apply(s: S, value: float | None) -> S:
        if value is not None:
            raise UsageError(f"--policy {name}={value:g}: it takes no value; give {name}")
        return change(s)

    return Policy(name, says, apply, costs)


def sets(table: str, **values: Callable[[float], Value]) -> Callable[[File, float], File]:
    """A change of one table of the scenario: each key by what is made of the value."""

    def change(s: File, value: float) -> File:
        return replace(s, **{table: replace(getattr(s, table), **{key: make(value) for key, make in values.items()})})

    return change
