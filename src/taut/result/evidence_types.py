"""What ``taut project --evidence`` writes down: a result of ``taut project``, and the few figures that only the evidence has.

``taut.project`` fills these structs, ``taut.render`` writes them into a folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, field

from taut.result.types import (
    Advice,
    AppliedPolicy,
    Estimate,
    Forecast,
    Forecasts,
    Part,
    PolicyGain,
    Question,
    Regime,
    Regimes,
    Reserves,
    Swept,
    Threshold,
    Thresholds,
)

if TYPE_CHECKING:
    from taut.core.array_types import Json
else:
    Json = Any  # as there: whatever it holds


class EvidenceAbout(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What a scenario is for, in the words of its ``[about]``; what that leaves out is left out here."""

    pattern: str = ""
    """How one recognises the situation."""
    computes: str = ""
    decision: str = ""
    """What it informs."""
    policies: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    """Where its numbers come from."""
    declared: dict[str, tuple[int | float, int | float]] = field(default_factory=dict)
    """What the literature declares for an index, without policies and with."""
    declared_regime: list[str] = field(default_factory=list)


class DeclaredIndex(Part, frozen=True, kw_only=True):
    """What the literature declares for an index."""

    without: int | float
    with_: int | float = field(name="with")


class FromDeclared(Part, frozen=True, kw_only=True):
    """Computed less declared; None where nothing was computed."""

    without: float | None
    with_: float | None = field(name="with")


class IndexEvidence(Part, frozen=True, kw_only=True):
    """An index without policies and with, and what follows by convention."""

    without: Estimate | None
    with_: Estimate | None = field(name="with")
    ratio: float | None
    risk_is: str
    """How far an index lies from losing nothing, as a formula."""
    risk_without: float | None
    risk_with: float | None
    damping_quotient: float | None
    """Risk with ÷ risk without; None where there was none."""
    mode_magnitude: float | None
    """None where the risk grew, or vanished."""
    declared: DeclaredIndex | None
    difference: FromDeclared | None


class Dispersion(Part, frozen=True, kw_only=True):
    """How a figure is spread over the indices that have it."""

    count: int
    mean: float
    sd: float


class Dispersions(Part, frozen=True, kw_only=True):
    """The spread of both figures of the convention; None where no index has one."""

    damping_quotient: Dispersion | None
    mode_magnitude: Dispersion | None


class ComparedEvidence(Part, frozen=True, kw_only=True):
    """The scenario beside itself with its policies."""

    policies: list[AppliedPolicy]
    indices: dict[str, IndexEvidence]
    dispersion: Dispersions
    forecast: Forecasts
    regime: Regimes
    reserve: Reserves
    threshold: Thresholds
    declared_regime: list[str] | None
    """That the literature declares, without policies and with."""
    implies: list[str]
    """What follows for a decision, in sentences."""


class ScenarioEvidence(Part, frozen=True, kw_only=True):
    """Everything that is written down about a scenario, at the scale that its result speaks of."""

    scenario: str
    command: str
    """Makes it again, to the byte."""
    seed: int
    steps: int | None
    about: EvidenceAbout
    definition: dict[str, Json]
    """The tables of the scenario as they were given, but for ``about``."""
    defaults: list[str]
    workload: str
    forecast: Forecast
    indices: dict[str, Estimate | None]
    regime: Regime | None
    threshold: Threshold | None
    questions: list[Question]
    compared: ComparedEvidence | None
    """None where nothing is compared."""
    gains: list[PolicyGain] | UnsetType = UNSET
    advice: list[Advice] | UnsetType = UNSET
    sweep: list[Swept] | UnsetType = UNSET
    digests: dict[str, str]
    """SHA-256 of a part as JSON with sorted keys."""
