"""Seeds of crashes that are kept: cases that once broke taut, one JSON object a line, run by every test run."""

from __future__ import annotations

import base64
import faulthandler
import json
import shutil
from collections.abc import Iterator
from typing import Any

from fuzzing.judge import Case, Finding, judged
from fuzzing.seeds import TESTS
from fuzzing.targets import TARGETS
from fuzzing.workers import Found, scratch_folder

FILE = TESTS / "seeds" / "found.jsonl"
HANGS_S = 60
LARGEST = 12_000
"""Bytes of a seed that is kept."""


def entry(found: Found) -> dict[str, Any]:
    """A finding as it is kept: text where it is text, else base64."""
    files = {}
    for name, data in found.case.files.items():
        try:
            files[name] = data.decode("ascii")
        except UnicodeDecodeError:
            files[name] = {"base64": base64.b64encode(data).decode()}
    return {
        "target": found.target,
        "found": f"{found.finding.kind} {found.finding.site}",
        "args": found.case.args,
        "files": files,
    }


def add(found: Found) -> None:
    """Keep a finding, if it is small."""
    if sum(map(len, found.case.files.values())) > LARGEST:
        return
    FILE.parent.mkdir(exist_ok=True)
    line = json.dumps(entry(found))
    have = FILE.read_text().splitlines() if FILE.exists() else []
    mark = json.loads(line)
    if any((old["target"], old["found"]) == (mark["target"], mark["found"]) for old in map(json.loads, have)):
        return
    with FILE.open("a") as stream:
        stream.write(line + "\n")


def cases() -> Iterator[tuple[str, str, Case]]:
    """(target, what was found, case) of every kept seed."""
    for line in FILE.read_text().splitlines() if FILE.exists() else ():
        one = json.loads(line)
        files = {n: d.encode() if isinstance(d, str) else base64.b64decode(d["base64"]) for n, d in one["files"].items()}
        yield one["target"], one["found"], Case(files, one["args"])  # number 0: also saved, shown, asked for control


def judge(target: str, case: Case) -> Finding | None:
    """What is wrong with a kept case now; a hang ends the process."""
    root = scratch_folder()
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        return judged(TARGETS[target].judge, case, root)[1]
    finally:
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(root, ignore_errors=True)


def run() -> int:
    """Run them all here; print those that still break something."""
    bad = count = 0
    for target, found, case in cases():
        count += 1
        finding = judge(target, case)
        if finding is not None:
            bad += 1
            print(f"{target}: {finding.kind} {finding.site} (a user sees: {finding.seen or '-'}); kept as {found}")
    print(f"{count} kept seeds, {bad} of them break something")
    return 1 if bad else 0
