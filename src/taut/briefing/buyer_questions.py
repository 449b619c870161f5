"""What architects and buyers ask before they commit, answered from everything that the briefing holds.

Each question is put to comparisons, runs, scenarios and control logs, in that order: what was measured comes before what was
modelled. An answer is a number with its interval, a sentence and the command that shows it; a question that nothing answers is
*not measured*, with what would measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from taut.briefing.answers import (
    Said,
    again,
    assumed_control,
    assumed_run,
    assumed_scenario,
    coupling_control,
    coupling_run,
    coupling_scenario,
    economic_run,
    economic_scenario,
    pilot_run,
    pilot_scenario,
    problem_control,
    problem_run,
    problem_scenario,
    repeated,
    spread_run,
    spread_scenario,
    stable_control,
    stable_run,
    stable_scenario,
)
from taut.result.brief_types import BriefedComparison, BriefedControl, BriefedRun, BriefedScenario
from taut.result.types import (
    BriefInput,
    BriefQuestion,
)

ANYTHING = 0.9
"""An interval of a share that is as wide tells nothing."""
NOT_MEASURED = "not measured"


class Sources(Struct, frozen=True):
    """What questions are put to."""

    runs: Sequence[BriefedRun]
    comparisons: Sequence[BriefedComparison]
    scenarios: Sequence[BriefedScenario]
    controls: Sequence[BriefedControl]


class Asking(Struct, frozen=True):
    """A question, who may answer it, and what to record where nobody can."""

    question: str
    needs: str
    command: str
    of_run: Callable[[BriefedRun], Said | None] = lambda run: None
    of_comparison: Callable[[BriefedComparison], Said | None] = lambda comparison: None
    of_scenario: Callable[[BriefedScenario], Said | None] = lambda scenario: None
    of_control: Callable[[BriefedControl], Said | None] = lambda control: None


def questions(sources: Sources) -> list[BriefQuestion]:
    """Every question with the answer of the first source that has one."""
    return [next(answers(asking, sources), _unanswered(asking)) for asking in ASKED]


def answers(asking: Asking, sources: Sources) -> Iterator[BriefQuestion]:
    """The answers to a question, those of measured sources first."""
    told: list[tuple[BriefInput, Said | None]] = [
        *((one.source, asking.of_comparison(one)) for one in sources.comparisons),
        *((one.source, asking.of_run(one)) for one in sources.runs),
        *((one.source, asking.of_scenario(one)) for one in sources.scenarios),
        *((one.source, asking.of_control(one)) for one in sources.controls),
    ]
    for source, said in told:
        if said is not None and _tells(said):
            yield BriefQuestion(
                question=asking.question,
                answer=said.answer,
                unit=said.unit,
                of_100=said.of_100,
                says=said.says,
                taken_from=f"{source.name}: {said.key}",
                command=source.command,
                needs=None,
            )


def _tells(said: Said) -> bool:
    """Whether an answer says anything: a share that may be all or nothing does not."""
    lo, hi = said.answer.lo, said.answer.hi
    return said.unit != "share" or lo is None or hi is None or hi - lo < ANYTHING


def _unanswered(asking: Asking) -> BriefQuestion:
    return BriefQuestion(
        question=asking.question,
        answer=None,
        unit=None,
        says=NOT_MEASURED,
        taken_from=None,
        command=asking.command,
        needs=asking.needs,
    )


ASKED = (
    Asking("How stable is the structure under load?", "traces of all ranks over 20 steps or more", "taut analyze TRACES",
           stable_run, of_scenario=stable_scenario, of_control=stable_control),
    Asking("Under what conditions is it economic?", "traces of all ranks, or a scenario with prices",
           "taut project SCENARIO --gpu-hour PRICE", economic_run, of_scenario=economic_scenario),
    Asking("How is non-determinism handled?", "two or more runs of the same job", "taut compare RUN RUN", spread_run,
           repeated, spread_scenario, again),
    Asking("How can stability be assessed before capital is committed?",
           "a scenario of the system to be bought, or a traced run", "taut project SCENARIO --envelope", pilot_run,
           of_scenario=pilot_scenario),
    Asking("What is assumed about synchronisation at scale?", "traces of all ranks, or a training scenario",
           "taut analyze TRACES", assumed_run, of_scenario=assumed_scenario, of_control=assumed_control),
    Asking("Which coupling is exposed, managed, hidden?", "traces of all ranks, or logs of controllers", "taut analyze TRACES",
           coupling_run, of_scenario=coupling_scenario, of_control=coupling_control),
    Asking("Is this a coupling problem or an infrastructure problem?", "traces of all ranks with a finding, or a scenario",
           "taut analyze TRACES", problem_run, of_scenario=problem_scenario, of_control=problem_control),
)  # fmt: skip
