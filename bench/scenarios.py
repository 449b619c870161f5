"""Write the evidence of every shipped scenario: ``python bench/scenarios.py docs/scenarios``, each by ``taut project NAME``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from taut.read.scenario_file import listed


def main() -> None:
    """All folders and the page that lists them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    lines = [
        "# Shipped scenarios", "",
        "What each is for, and what taut computes of it: every folder was written by `taut project NAME --evidence DIR`, all "
        "of them by `python bench/scenarios.py docs/scenarios`. Parameters are cited or stated as assumptions in each page; "
        "none was tuned to what the literature declares.", "",
        "| scenario | how one recognises it | what it informs |", "|---|---|---|",
    ]  # fmt: skip
    for one in listed():
        name = one["name"]
        command = [sys.executable, "-m", "taut", "project", name, "--evidence", str(folder / name), "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines.append(f"| [{name}]({name}/README.md) | {one['pattern']} | {one['decision']} |")
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
