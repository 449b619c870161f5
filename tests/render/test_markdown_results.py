"""Results as Markdown: the verdict first, findings as a table, names as text."""

from __future__ import annotations

from dataclasses import replace

from build import analyze, job
from taut.render.markdown_results import analysis_markdown

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}


def test_an_analysis_names_its_finding_and_obeys_no_name() -> None:
    built = replace(job(SLOW, steps=12), name="a|b `c` <script>alert(1)</script> # d")
    found = analyze(built).result
    text = analysis_markdown(found)
    lines = text.splitlines()
    assert lines[0] == "# taut analyze"
    assert lines[2].startswith("a\\|b \\`c\\` &lt;script&gt;alert(1)&lt;/script&gt; # d: 2 ranks, 12 steps")
    assert "| Finding | Where | Recoverable | Because | Do |" in lines
    assert f"| {found.findings[0].mode} | rank 1 |" in text
    assert "<script" not in text


def test_a_healthy_job_has_a_verdict_and_no_table() -> None:
    text = analysis_markdown(analyze(job({0: "fwd 5 | AR 1", 1: "fwd 5 | AR 1"}, steps=12)).result)
    assert "## Verdict" in text
    assert "| Finding" not in text
