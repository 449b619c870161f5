"""Analyse the built-in job: the verdict, and what each finding would give back if fixed."""

from importlib.resources import as_file, files

import taut

with as_file(files("taut") / "demo") as folder:
    analysis = taut.analyze([folder])

print(analysis.verdict)
for finding in analysis.findings:
    print(f"{finding.mode}: ranks {finding.ranks}, links {finding.links}")
    print(f"  recoverable {finding.recoverable_wall_ns / 1e6:.0f} ms of wall, because {finding.because}")
