"""Writes docs/watch/taut-dashboard.json, a Grafana dashboard of the collector's metrics.

python docs/watch/dashboard.py     needs pip install grafana-foundation-sdk
"""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueTextMode,
    GraphTresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

FILE = Path(__file__).with_name("taut-dashboard.json")
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
JOB = '{job_name=~"$job_name"}'
RANK = "rank {{rank}} {{host}}"
LATEST = 10
"""Ranks of a graph."""


def query(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    """What is asked of Prometheus."""
    return prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref)


def limits(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Colours from these values on."""
    found = [Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(found)


def number(title: str, expr: str, unit: str, about: str, *steps: tuple[float | None, str], legend: str = "") -> stat.Panel:
    """One figure of now."""
    shown = stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(4).span(4)
    shown = shown.with_target(query(expr, legend).instant()).no_value("not known")
    return shown.color_mode(BigValueColorMode.VALUE).thresholds(limits(*(steps or ((None, "text"),))))


def graph(title: str, unit: str, about: str, *queries: prometheus.Dataquery) -> timeseries.Panel:
    """Lines over time."""
    shown = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit).height(8).span(12)
    for one in queries:
        shown = shown.with_target(one)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    return shown.min(0).line_width(1).legend(legend)


def findings() -> table.Panel:
    """A row for each open finding."""
    gone = dict.fromkeys(("Time", "Value", "__name__", "job", "instance"), True)
    names = {"job_name": "job"}
    asked = query(f"taut_finding_open{JOB}").instant().format(PromQueryFormat.TABLE)
    shown = table.Panel().title("Open findings").datasource(SOURCE).height(7).span(24).no_value("nothing is open")
    shown = shown.description("Who, where: `taut watch top --job JOB` says since which step, and what to do.")
    kept = DataTransformerConfig(id_val="organize", options={"excludeByName": gone, "renameByName": names})
    return shown.with_target(asked).with_transformation(kept).show_header(True)


def latest(metric: str) -> prometheus.Dataquery:
    """The ranks with the highest values."""
    return query(f"topk({LATEST}, {metric}{JOB})", RANK)


def figures() -> tuple[stat.Panel, ...]:
    """The first row."""
    red = ((None, "green"), (1, "red"))
    lost = 'sum(taut_job_ranks{job_name=~"$job_name",state="lost"})'
    cost = f"sum by (currency) (taut_finding_cost_per_hour{JOB})"
    return (
        number("Open findings", f"sum(taut_job_open_findings{JOB})", "none", "Of all jobs shown.", *red),
        number("Cost of what is open, an hour", cost, "none", "Needs --gpu-hour at the collector.", legend="{{currency}}"),
        number("Step", f"taut_job_step_seconds{JOB}", "s", "Median of the last steps.", legend="{{job_name}}"),
        number("Ranks lost", lost, "none", "Silent for 15 s, without a goodbye.", *red),
        named("Verdict", f"taut_job_class{JOB} == 1", "Class of the verdict of each job.", "{{job_name}}: {{class}}"),
        named("Regime", f"taut_job_regime{JOB} == 1", "By the last analysis.", "{{job_name}}: {{regime}}"),
    )


def named(title: str, expr: str, about: str, legend: str) -> stat.Panel:
    """A word of now."""
    return number(title, expr, "none", about, legend=legend).text_mode(BigValueTextMode.NAME)


def graphs() -> tuple[timeseries.Panel, ...]:
    """What happened, over time."""
    late = "How late they come to their gates behind the middle member."
    return (
        graph("Step time", "s", "Median of the last steps.", query(f"taut_job_step_seconds{JOB}", "{{job_name}}")),
        graph("The latest ranks", "s", late, latest("taut_rank_late_seconds")),
        graph("Busier than the middle rank", "s", "A step, outside of waits.", latest("taut_rank_busy_excess_seconds")),
        graph("Longer in the loader than the middle rank", "s", "A step.", latest("taut_rank_loader_excess_seconds")),
        reserve(),
        graph("Ranks", "none", "Heard, lost or ended.", query(f"sum by (state) (taut_job_ranks{JOB})", "{{state}}")),
        graph(
            "Events", "cps", "Received, and lost by reason (docs/watch.md).",
            query(f"sum(rate(taut_job_received_events_total{JOB}[1m]))", "received"),
            query(f"sum by (reason) (rate(taut_job_lost_events_total{JOB}[1m]))", "{{reason}}", "B"),
        ),
        graph(
            "Collector", "none", "Refused connections and failed looks in five minutes; age of what is shown, s.",
            query("increase(taut_collector_refused_connections_total[5m])", "refused {{instance}}"),
            query("increase(taut_collector_failed_looks_total[5m])", "failed looks {{instance}}", "B"),
            query("time() - taut_collector_seen_time_seconds", "age {{instance}}", "C"),
        ),
    )  # fmt: skip


def reserve() -> timeseries.Panel:
    """The reserve, with the lines from which it is thin and depleted."""
    about = "Factor by which jitter may still grow before one more accelerator stops paying; below 2 it is thin."
    value = query(f"taut_job_reserve_ratio{JOB}", "{{job_name}}")
    least = query(f"taut_job_reserve_lower_ratio{JOB}", "{{job_name}} at least", "B")
    lines = common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.LINE)
    shown = graph("Reserve", "none", about, value, least)
    return shown.thresholds(limits((None, "red"), (1, "yellow"), (2, "green"))).thresholds_style(lines)


def built() -> dashboard.Dashboard:
    """The dashboard."""
    source = dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    job = dashboard.QueryVariable("job_name").label("Job").datasource(SOURCE).query("label_values(taut_job_ranks, job_name)")
    job = job.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).include_all(True).all_value(".*").multi(True)
    job = job.current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    whole = (
        dashboard.Dashboard("taut: jobs while they run").uid("taut-watch").tags(["taut"]).refresh("10s").time("now-1h", "now")
    )
    whole = whole.timezone("utc").tooltip(DashboardCursorSync.CROSSHAIR).readonly().with_variable(source).with_variable(job)
    for panel in (*figures(), findings(), *graphs()):
        whole = whole.with_panel(panel)
    return whole


def main() -> None:
    """Write the file."""
    FILE.write_text(JSONEncoder(sort_keys=True, indent=1).encode(built().build()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
