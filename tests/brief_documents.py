"""A document with every kind of block and of chart, and one in which every text is a given one."""

from __future__ import annotations

from collections.abc import Callable

from taut.render.brief.document import (
    Areas,
    Bar,
    Bars,
    Block,
    Bullets,
    Cell,
    Chart,
    Column,
    Document,
    Edge,
    Empty,
    Fact,
    Facts,
    Grid,
    Heat,
    Line,
    Lines,
    Network,
    Node,
    Picture,
    Rule,
    Section,
    Sides,
    Terms,
    Text,
    Waterfall,
    WaterfallStep,
)

RANKS = (64, 256, 1024, 4096)


def same(text: str) -> str:
    return text


def charts(t: Callable[[str], str] = same) -> list[Chart]:
    """One of every kind; ``t`` makes its texts."""
    return [
        Bars(
            bars=[
                Bar(t("rank 137 waits"), 0.31, "waiting", t("31 %")),
                Bar(t("slow compute"), 0.12, "slow", t("12 %")),
                Bar(t("gained"), -0.04, "useful", t("−4 %")),
            ],
            axis=t("share of all rank time"),
        ),
        Bars(
            bars=[
                Bar(t("useful"), 0.6, "useful", t("60 %"), t("now")),
                Bar(t("waiting"), 0.3, "waiting", t("30 %"), t("now")),
                Bar(t("other"), 0.02, "other", t("2 %"), t("now")),
                Bar(t("useful"), 0.8, "useful", t("80 %"), t("after the fix")),
                Bar(t("waiting"), 0.1, "waiting", t("10 %"), t("after the fix")),
            ],
            axis=t("share of all rank time"),
        ),
        Waterfall(
            steps=[
                WaterfallStep(t("invoiced"), 0, 1000, "whole", t("1,000 EUR")),
                WaterfallStep(t("waiting at gates"), 1000, 700, "waiting", t("−300 EUR, 30 %")),
                WaterfallStep(t("restarts"), 700, 690, "restart", t("−10 EUR, 1 %")),
                WaterfallStep(t("useful work"), 0, 690, "useful", t("690 EUR")),
            ],
            axis=t("EUR a month"),
        ),
        Areas(
            x=[0, 10, 20, 30],
            series=[
                (t("compute"), "useful", [0, 5, 9, 14]),
                (t("communication"), "communication", [0, 1, 2, 2]),
                (t("waiting"), "waiting", [0, 2, 6, 9]),
            ],
            x_axis=t("seconds since the start"),
            y_axis=t("EUR so far"),
        ),
        Lines(
            lines=[
                Line(t("computed"), RANKS, [0.9, 0.8, 0.62, 0.4], [0.88, 0.75, 0.5, 0.3], [0.92, 0.85, 0.7, 0.5]),
                Line(t("nominal"), RANKS, [1, 1, 1, 1], dashed=True),
            ],
            x_axis=t("ranks"),
            y_axis=t("effective throughput, share of nominal"),
            log_x=True,
            shares=True,
            rules=[Rule(2048, t("threshold")), Rule(0.5, t("half is lost"), horizontal=True)],
            points=[(1024, 0.62, t("this job"))],
        ),
        Heat(
            rows=[t("rank 0"), t("rank 1"), t("rank 2")],
            columns=[t("rank 0"), t("rank 1"), t("rank 2"), t("rank 3")],
            row_axis=t("who is late"),
            column_axis=t("who waits"),
            values=[(0, 1, 0.01, t("1 %")), (1, 2, 0.12, t("12 %")), (2, 0, 0.4, t("40 %")), (2, 3, 0.22, t("22 %"))],
            value_axis=t("share of all waiting"),
            marked=(2, 0),
        ),
        Network(
            nodes=[
                Node(t("forward"), "work", "useful", 0.5, 0.0, 0.45, True, t("45 % of rank time")),
                Node(t("load batch"), "work", "gap", 0.0, 0.5, 0.1, False, t("10 %")),
                Node(t("backward"), "work", "slow", 1.0, 0.5, 0.3, True, t("30 %, slow on rank 137")),
                Node(t("all-reduce of gradients"), "gate", "waiting", 0.5, 1.0, 0.28, True, t("28 % waiting")),
            ],
            edges=[
                Edge(0, 1, 0.2),
                Edge(0, 2, 1.0, True, t("each step")),
                Edge(1, 3, 0.2),
                Edge(2, 3, 1.0, True),
                Edge(3, 0, 0.4, False, t("next step")),
                Edge(1, 2, 0.1),
                Edge(3, 3, 0.1),
            ],
        ),
        Network(
            nodes=[
                Node(t("cluster"), "layer", "other", 0.5, 0.0, 0, False, t("decides every 60 s")),
                Node(t("autoscaler"), "controller", "whole", 0.0, 0.5, 0),
                Node(t("load balancer"), "controller", "whole", 1.0, 0.5, 0, True),
            ],
            edges=[Edge(0, 1, 0.5, label=t("sets capacity")), Edge(1, 2, 1.0, True, t("undoes, 12 EUR/h")), Edge(2, 1, 0.4)],
        ),
    ]  # fmt: skip


def blocks(t: Callable[[str], str] = same) -> list[Block]:
    """One of every kind, but for those with charts."""
    return [
        Text(t("One rank holds up 1,023 others: 31 % of what you pay for is waiting."), "lead"),
        Facts(
            [
                Fact(t("nominal"), t("1,024 GPUs"), t("what is paid for")),
                Fact(t("effective"), t("62 % (58–66)"), t("what arrives as useful work")),
                Fact(t("regime"), t("strained"), t("reserve 12 % (8–15)")),
                Fact(t("cost"), t("412,000 EUR a month"), t("lost to waiting and restarts")),
            ]
        ),
        Text(t("Replace host gpu-17 before the next run."), "plain"),
        Text(t("Intervals hold nine times in ten."), "note"),
        Text(t("No price was given: money is at a default price."), "warning"),
        Grid(
            t("Causes that matter"),
            [Column(t("cause")), Column(t("money a month"), numeric=True), Column(t("what to do"))],
            [
                [t("slow GPU on gpu-17"), t("128,000 EUR"), t("drain the host")],
                [Cell(t("utilisation 97 %"), "old"), Cell(t("effective 62 %"), "new"), Cell(t("worse"), "bad")],
                [Cell(t("checkpoints"), "strong"), Cell(t("within limits"), "good"), t("nothing")],
            ],
            t("Money at 2.50 EUR per GPU hour."),
        ),
        Bullets([t("Ask for the tail of the fabric's latency."), t("Run the test of section 7.")], numbered=True),
        Bullets([t("Clocks were not checked.")]),
        Terms([(t("gate"), t("a place where ranks wait for each other"))]),
        Empty(t("Control was not measured."), t("Record the decisions of your controllers."), "taut control LOG"),
    ]


def document(t: Callable[[str], str] = same) -> Document:
    """A whole briefing."""
    pictures = [Picture(t(f"Chart {i + 1}"), t("What the chart shows, in words."), chart) for i, chart in enumerate(charts(t))]
    views = Sides(
        t("Component view"), [blocks(t)[5], pictures[0]], t("Operator view"), [Text(t("Where the loss is.")), pictures[6]]
    )
    return Document(
        title=t("Architecture Risk Briefing: job 4711"),
        subtitle=t("1,024 GPUs, 12 March 2026, 09:00–11:30 UTC"),
        sections=[
            Section("page-one", t("For whoever decides"), blocks(t), [t("taut analyze job-4711")]),
            Section("views", t("Two views of one job"), [views], [t("taut analyze job-4711 --json")], page=True),
            Section("charts", t("Figures"), pictures, page=True),
            Section("empty", t("Control"), [Empty(t("Not measured."), t("Record a control log."))]),
        ],
        footer=t("Made by taut from the inputs named at the end."),
    )
