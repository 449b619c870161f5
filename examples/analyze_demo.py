"""Analyse the built-in job: the verdict, and what each cause would give back if fixed."""

from importlib.resources import as_file, files

import taut

with as_file(files("taut") / "demo") as folder:
    analysis = taut.analyze([folder])

print(analysis.verdict)
