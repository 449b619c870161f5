"""A scored matrix for people and programs: on the terminal, as JSON, CSV and Markdown, and as two plots.

Every cell is shown and every failure is named: a table that only holds what went well is an advertisement.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from taut.lab.score import COSTS, Row, Share, Summary, summarise
from taut.lab.truth import HEALTHY, MODES
from taut.render.text import duration, percent, safe

if TYPE_CHECKING:
    from altair import LayerChart

GOOD = ("right", "quiet")
NOT_YET = "not yet"
NO_PLOTS = "no plots: altair and vl-convert-python are not installed; pip install 'taut[lab]'"
BANDS = (0.25, 0.10)
"""Errors of a prediction that the plot shades."""


@dataclass(frozen=True)
class Grid:
    """A table of words: the first column says what a row is about."""

    header: Sequence[str]
    body: Sequence[Sequence[str]]

    def show(self, console: Console) -> None:
        """Print it; a cell where everything is right is green, one where not is red, one without a verdict dim."""
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for i, name in enumerate(self.header):
            table.add_column(name, justify="right" if i else "left")
        for first, *cells in self.body:
            table.add_row(Text(safe(first), style="bold"), *(Text(safe(cell), style=_style(cell)) for cell in cells))
        console.print(table)

    def markdown(self) -> str:
        """The same for a page."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        lines = ("| " + " | ".join(safe(c).replace("|", "\\|") for c in row) + " |" for row in (self.header, rule, *self.body))
        return "\n".join(lines) + "\n"


def _style(text: str) -> str:
    share = right(text)
    return ("dim" if text == NOT_YET else "") if share is None else "green" if share == 1 else "red"


def right(text: str) -> float | None:
    """The share in a cell like ``3/4``."""
    good, slash, of = text.partition("/")
    return int(good) / int(of) if slash else None


def matrix(rows: Sequence[Row]) -> Grid:
    """Fault × job: runs that are right (of healthy ones: quiet) of all runs."""
    jobs, ordered = list(dict.fromkeys(r.job for r in rows)), sorted(rows, key=_order)
    columns = (*([job] for job in jobs), jobs)
    body = [
        [label, *(cell([r for r in rows if r.label == label and r.job in column]) for column in columns)]
        for label in dict.fromkeys(r.label for r in ordered)
    ]
    return Grid(["fault", *jobs, "all"], body)


def _order(row: Row) -> tuple[bool, int, str, str, int, int]:
    return row.from_start, list(MODES).index(row.fault), row.places, row.job, row.ranks, row.seed


def groups(summary: Summary) -> Grid:
    """With a past and without, with a baseline and without: what is right, by what was faulty."""
    when = {True: "with a past", False: "from the start"}
    body = [
        ["healthy, a finding" if g.past is None else f"{g.place}, {when[g.past]}", _short(g.alone), _short(g.with_baseline)]
        for g in summary.groups
    ]
    return Grid(["right at first place (95 %)", "alone", "with a baseline"], body)


def _short(share: Share) -> str:
    if share.value is None or share.lo is None or share.hi is None:
        return "–"
    return f"{share.count} of {share.of} = {percent(share.value)} ({100 * share.lo:.1f}–{100 * share.hi:.1f})"


def cell(rows: Sequence[Row]) -> str:
    """``3/4``: right of all that could be judged; ``not yet`` where none could, empty where nothing was run."""
    judged = [r for r in rows if r.verdict != NOT_YET]
    return f"{sum(r.verdict in GOOD for r in judged)}/{len(judged)}" if judged else NOT_YET if rows else ""


def failures(rows: Sequence[Row]) -> list[str]:
    """One line for every run that is not right."""
    out = []
    for r in sorted(rows, key=_order):
        run = f"{r.label} × {r.job}, {r.ranks} ranks, seed {r.seed}"
        for said, verdict, found in (("", r.verdict, r.found), ("with a baseline ", r.baseline_verdict, r.baseline_found)):
            if verdict not in (*GOOD, NOT_YET, None):
                out.append(safe(f"{run}: {said}{verdict}; found {found}; wanted {r.wanted}{_cost(r)}"))
    return out


def _cost(row: Row) -> str:
    """What the fault cost, as measured."""
    if row.fault in HEALTHY or row.saving_ns is None or row.saving_se_ns is None:
        return ""
    return f"; it cost {row.saving_ns / 1e6:.0f} ± {row.saving_se_ns / 1e6:.0f} ms"


def device(rows: Sequence[Row]) -> Grid:
    """Every rank's step on its GPU by CUDA events and by the analysis; empty where no run has them."""
    body = [
        [
            f"{row.fault} × {row.job}, {row.ranks} ranks, seed {row.seed}",
            str(s.rank),
            str(s.steps),
            f"{s.events_ns / 1e6:.3f}",
            f"{s.analysed_ns / 1e6:.3f}",
            f"{100 * s.error:.3f} %",
            f"{100 * s.worst_step:.2f} %",
        ]
        for row in rows
        for s in row.device_steps
    ]
    return Grid(["device step", "rank", "steps", "CUDA events, ms", "analysed, ms", "off", "worst single step"], body)


def alike(rows: Sequence[Row]) -> Grid:
    """Jobs that were run again under a policy: class, finding, and the saving as predicted and as measured."""
    body = [
        [
            f"{r.label} × {r.job}, {r.ranks} ranks, seed {r.seed}",
            _class(r),
            r.verdict,
            _share(r.loss_share),
            _share(r.policy_saved),
            _share(r.policy_predicted.value if r.policy_predicted else None),
            "–" if r.policy_ratio is None else f"{r.policy_ratio:.2f}",
        ]
        for r in sorted(rows, key=_order)
        if r.policy_saved is not None
    ]
    return Grid(["no culprit", "class", "finding", "late last", "local steps save", "predicted", "predicted ÷ measured"], body)


def _class(row: Row) -> str:
    wanted = row.wanted_class
    return row.found_class if wanted in (None, row.found_class) else f"{row.found_class}, not {wanted}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def lines(s: Summary) -> list[str]:
    """The summary in sentences."""
    out = [f"Root cause right at first place: {_of(s.right, 'faulted runs')}; {s.extra} findings in them fit nothing done."]
    if s.right_measured.of:
        out.append(f"Of faults that cost at least {COSTS} standard errors: {_of(s.right_measured, 'runs')}.")
    out.append(f"Detection: precision {_of(s.precision, 'runs with a finding')}, recall {_of(s.recall, 'faulted runs')}.")
    if s.false_per_20:
        value, lo, hi = s.false_per_20
        out.append(f"False findings: {_of(s.false_findings, 'healthy runs')}; {value:.2g} in 20 ({lo:.2g}–{hi:.2g}).")
    out += [*_savings_lines(s), *_time_lines(s), *_device_lines(s), *_alike_lines(s)]
    out.append(f"The ledger closes in {_of(s.closes, 'runs')}.")
    if s.failed:
        out.append(f"The analysis failed in {s.failed} runs.")
    if s.not_yet:
        out.append(f"Not yet (their mode is not built): {', '.join(f'{f} {n}' for f, n in s.not_yet.items())}.")
    return out


def _savings_lines(s: Summary) -> Iterator[str]:
    """Predicted savings against measured ones, alone and with a baseline."""
    alone, again = s.counterfactual, s.baseline_counterfactual
    if alone.median is not None and alone.p90 is not None:
        yield (
            f"Counterfactual error: median {percent(alone.median)}, p90 {percent(alone.p90)} of the measured saving over "
            f"{alone.n} faults worth ten standard errors; predicting no change scores {percent(s.counterfactual_no_change)}."
        )
    if again.median is not None and again.p90 is not None:
        yield f"With a baseline: median {percent(again.median)}, p90 {percent(again.p90)} over {again.n} of them."


def _time_lines(s: Summary) -> Iterator[str]:
    """When faults began, and how far clocks were off."""
    onset, clock = s.onset_steps, s.clock_ns
    if onset.median is not None:
        yield f"Onset: median {onset.median:.3g} steps off over {onset.n} faults found."
    if clock.median is not None and clock.max is not None:
        most = f"median {duration(clock.median)}, at most {duration(clock.max)} off"
        yield f"Clocks: {most} in {clock.n} runs without a faulty link."
    if s.clock_covered is not None:
        yield f"Clock intervals hold the truth for {percent(s.clock_covered)} of the ranks in runs with a faulty link."


def _device_lines(s: Summary) -> Iterator[str]:
    """What only runs on a GPU have."""
    error, cost = s.device_error, s.profiler_overhead
    if error.median is not None and error.max is not None:
        most = f"median {100 * error.median:.2f} %, at most {100 * error.max:.2f} % off"
        yield f"Device step time against CUDA events of the same steps: {most} in {error.n} runs."
    if s.class_named.of:
        yield f"Slow kernels named with their rank: {_of(s.class_named, 'runs that have one')}."
    if cost.median is not None:
        yield f"The profiler on a GPU: median {100 * cost.median:+.1f} % of step time over {cost.n} runs."


def _alike_lines(s: Summary) -> Iterator[str]:
    """Jobs without a culprit: what was found, what a policy saves, what larger ones lose."""
    if s.classes.of or s.without_culprit.of:
        found = _of(s.without_culprit, "jobs that all ranks have something alike in")
        yield f"No culprit: finding right in {found}; class right in {_of(s.classes, 'jobs')}."
    ratio, off = s.policy_ratio, s.policy_error
    if ratio is not None and off.median is not None:
        spread = f"median {ratio.median:.2f} (p10 {ratio.p10:.2f}, p90 {ratio.p90:.2f}), median error {percent(off.median)}"
        yield f"Local steps, predicted ÷ measured saving: {spread}, over {ratio.n} jobs with hiccups, savings from 3 % on."
    if s.growth_covered.of:
        yield f"What larger jobs of the same law lose: {_of(s.growth_covered, 'intervals')} hold it."


def _of(share: Share, noun: str) -> str:
    text = f"{share.count} of {share.of} {noun}"
    if share.value is None or share.lo is None or share.hi is None:
        return text
    return f"{text} = {percent(share.value)} ({100 * share.lo:.1f}–{percent(share.hi)})"


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the matrix, every failure, and the summary."""
    summary = summarise(rows)
    matrix(rows).show(console)
    for grid in (alike(rows), device(rows), groups(summary)):
        if grid.body:
            console.print()
            grid.show(console)
    for heading, texts in (("Not right", failures(rows)), ("Score (95 % intervals in brackets)", lines(summary))):
        if texts:
            console.print(Text(f"\n{heading}", style="underline"), Text("\n".join(texts)), sep="\n", soft_wrap=True)


def write(rows: Sequence[Row], folder: Path) -> list[str]:
    """Write ``matrix.json``, ``.csv``, ``.md`` and the plots; returns notes on it, if any."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = summarise(rows)
    document = msgspec.json.encode({"summary": summary, "rows": rows})
    (folder / "matrix.json").write_bytes(msgspec.json.format(document, indent=1))
    sheet = io.StringIO(newline="")
    columns = [name for name in Row.__struct_fields__ if name not in ("device_steps", "growth", "policy_predicted")]
    plain = csv.DictWriter(sheet, columns, lineterminator="\n", extrasaction="ignore")
    plain.writeheader()
    plain.writerows({k: safe(v) if isinstance(v, str) else v for k, v in msgspec.to_builtins(r).items()} for r in rows)
    (folder / "matrix.csv").write_text(sheet.getvalue(), encoding="utf-8")
    bullets = [*(f"- {line}" for line in lines(summary)), "", *(f"- {line}" for line in failures(rows))]
    grids = [grid.markdown() for grid in (matrix(rows), alike(rows), groups(summary), device(rows)) if grid.body]
    (folder / "matrix.md").write_text("\n".join([*grids, *bullets]).rstrip() + "\n", encoding="utf-8")
    try:
        for name, chart in plots(rows).items():
            chart.save(str(folder / f"{name}.svg"))
    except ImportError:
        return [NO_PLOTS]
    return []


def plots(rows: Sequence[Row]) -> dict[str, LayerChart]:
    """The charts by name; needs the ``lab`` extra."""
    import altair as alt
    import vl_convert  # noqa: F401  (saves them)

    worth = [r for r in rows if r.counterfactual_error is not None]
    return {"matrix": _heat(alt, matrix(rows)), **({"counterfactual": _savings(alt, worth)} if worth else {})}


def _heat(alt: ModuleType, grid: Grid) -> LayerChart:
    """Fault × job, coloured by the share that is right; grey where it is not known yet."""
    jobs, faults = list(grid.header[1:]), [row[0] for row in grid.body]
    texts = [(fault, job, text) for fault, *row in grid.body for job, text in zip(jobs, row, strict=True) if text]
    cells = [{"fault": f, "job": j, "text": t, "share": -1 if right(t) is None else right(t)} for f, j, t in texts]
    bare = {"title": None, "domain": False, "ticks": False, "grid": False}
    base = alt.Chart(alt.Data(values=cells), width=76 * len(jobs), height=26 * len(faults), title="Runs that are right").encode(
        alt.X("job:N", sort=jobs, axis=alt.Axis(orient="top", labelAngle=0, **bare)),
        alt.Y("fault:N", sort=faults, axis=alt.Axis(**bare)),
    )
    scale = alt.Scale(domain=[-1, 0, 0.5, 1], range=["#e4e4e4", "#d9716f", "#f1d38a", "#7cc09a"])
    tiles = base.mark_rect(stroke="white", strokeWidth=2).encode(alt.Color("share:Q", scale=scale, legend=None))
    return _clean(tiles + base.mark_text().encode(alt.Text("text:N")))


def _savings(alt: ModuleType, rows: Sequence[Row]) -> LayerChart:
    """Predicted against measured saving, with the diagonal; what was not predicted at all lies on the lower edge."""
    pairs = [(r.fault, (r.saving_ns or 0) / 1e9, (r.predicted_ns or 0) / 1e9) for r in rows]
    low, high = min(x for _, x, _ in pairs) / 3, 1.5 * max(max(x, y) for _, x, y in pairs)
    points = [{"fault": fault, "x": x, "y": max(y, 1.04 * low), "seen": y > low} for fault, x, y in pairs]
    ends = [{"x": e, "lo": e * (1 - b), "hi": e * (1 + b), "band": b} for e in (low, high) for b in BANDS]
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    axis = alt.Axis(values=[d * 10.0**k for k in range(-6, 7) for d in (1, 2, 5)], format="~g", gridColor="#eeeeee")
    x = alt.X("x:Q", title="measured saving, s", scale=scale, axis=axis)
    y = {key: alt.Y(f"{key}:Q", title="predicted saving, s", scale=scale, axis=axis) for key in ("x", "y", "lo")}
    title = f"Predicted against measured saving; bands {' and '.join(f'±{100 * b:.0f} %' for b in BANDS)}"
    line = alt.Chart(alt.Data(values=ends), width=420, height=420, title=title)
    bands = line.mark_area(color="#888888", opacity=0.2, clip=True).encode(x, y["lo"], alt.Y2("hi:Q"), detail="band:N")
    color = alt.Color("fault:N", sort=list(MODES), scale=alt.Scale(scheme="tableau20"))
    shape = alt.Shape("seen:N", scale=alt.Scale(domain=[True, False], range=["circle", "triangle-down"]), legend=None)
    dots = alt.Chart(alt.Data(values=points)).mark_point(filled=True, size=60, opacity=0.85).encode(x, y["y"], color, shape)
    return _clean(bands + line.mark_line(color="#888888", strokeWidth=1).encode(x, y["x"]) + dots)


def _clean(chart: LayerChart) -> LayerChart:
    title = {"anchor": "start", "frame": "group", "offset": 14}
    shown: LayerChart = chart.configure(font="sans-serif", padding=12, title=title, view={"stroke": None})
    return shown
