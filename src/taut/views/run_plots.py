"""The pictures of a run: what they show is computed when one is asked for."""

from __future__ import annotations

from taut.render.run_charts import RunPlots, RunViews
from taut.stored import Run
from taut.views.lateness import lateness_of
from taut.views.overview import fates, lateness_map, step_times


def run_plots(run: Run) -> RunPlots:
    """``plot`` of a run, opened or just analysed."""
    result = run.result
    return RunPlots(
        RunViews(
            unit=result.job.unit,
            currency=result.ledger.currency if result.ledger else None,
            fates=lambda: fates(result),
            steps=lambda: step_times(run),
            lateness=lambda: lateness_map(run.graph),
            waits=lambda: lateness_of(run),
            ranks=lambda: result.ranks or [],
        )
    )
