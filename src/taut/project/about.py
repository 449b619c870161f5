"""The table of a scenario that says what it is for."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from taut.core.strict_toml import Strict


class About(Strict, frozen=True):
    """What a scenario is for, in words; nothing here changes a number."""

    words_only: ClassVar[bool] = True

    pattern: str = ""
    """How one recognises the situation."""
    computes: str = ""
    """What the scenario tells, in words."""
    decision: str = ""
    """What it informs."""
    policies: tuple[str, ...] = ()
    """What is compared with the scenario as it stands, all together: ``NAME`` or ``NAME=VALUE``."""
    sources: tuple[str, ...] = ()
    """Where its numbers come from."""
    declared: dict[str, tuple[float, float]] = field(default_factory=dict)
    """What the literature declares for an index, before and after: printed beside what is computed, never used."""
    declared_regime: tuple[str, ...] = ()
    """Regime that the literature declares, before and after."""

    def __hash__(self) -> int:
        """Of what is not a table; scenarios are keys of what was computed of them."""
        return hash((self.pattern, self.computes, self.decision, self.policies))
