"""``taut audit why --again``: run a recorded command again in a scratch folder, and compare the bytes of what it gives.

Only records that carry the mark of this user's key are repeated, only verbs that compute, and only after the command was shown
and agreed to. Inputs must have their recorded digests, or nothing is run; of very many files there is one digest of all, which
is held against that of what was read this time. Inputs are linked into the scratch folder under the names that the command
used, so that names in results are the same; what it wrote elsewhere is written into the scratch folder too, and so is its
record. It sees no variable of taut's, so no secret, and opens no address and no cluster.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut import __version__
from taut.cli.common import FAILED, say
from taut.cli.options import Target
from taut.cli.recording import MOST_FILES, STDIN, SWITCH, file_digest
from taut.core.errors import AuditError, UsageError
from taut.core.folder import RUN, is_run_folder, sealed
from taut.read.remote import is_address
from taut.result.types import AuditAgain, AuditRecord

if TYPE_CHECKING:
    from taut.core.array_types import Json

PRINTED = "standard output"
COMPUTING = ("analyze", "bill", "brief", "compare", "control", "demo", "export", "project", "whatif")
"""Verbs that only compute: they read what they are given, and write what they are told to."""
CLUSTER, LOCAL = "on", "local"
"""Name of the option that names a cluster, and what names this machine."""


def run_again(record: AuditRecord, is_own: bool, agreed: bool) -> AuditAgain:
    """Whether a recorded command gives the same bytes again; refused where it cannot be run as it was, or may not be."""
    told = record.details
    words = [word for word in _list(told, "arguments") if isinstance(word, str)]
    if record.kind != "verb" or not words or len(words) != len(_list(told, "arguments")):
        raise UsageError(
            f"record {record.index}: has no command to run again: it is no verb's, is older, or was redacted or pruned"
        )
    if not is_own:
        raise UsageError(
            f"record {record.index}: carries no mark of your key: somebody else or an earlier taut wrote it, and only commands "
            "that you recorded are run again"
        )
    if record.version != __version__:
        raise UsageError(f"record {record.index}: was written by taut {record.version}; run it again with that version")
    inputs, outputs = [*_parts(told, "inputs")], [*_parts(told, "outputs")]
    if not outputs and told.get("printed") is None:
        raise UsageError(f"record {record.index}: holds no digest of anything written, or printed with --json, to compare")
    words = _without_log(words)
    _check_local(record, words)
    _check_computes(record.index, words, outputs)
    _check_inputs(record, inputs)
    _check_apart(record.index, inputs, outputs)
    _check_agreed(record.index, words, agreed)
    piped = [one for one in _parts(told, "read") if one.get("name") in (STDIN, "")]
    given = _standard_input(record.index, piped) if piped else b""
    with tempfile.TemporaryDirectory(prefix="taut-again-") as scratch:
        return _compared(record, words, given, Path(scratch))


def _check_local(record: AuditRecord, words: Sequence[str]) -> None:
    """Refuse a command that read what lies at an address."""
    names = [*words, *(str(one.get("name")) for key in ("inputs", "read") for one in _parts(record.details, key))]
    address = next((part for name in names for part in (name, name.partition("=")[2]) if is_address(part)), None)
    if address is not None:
        raise UsageError(f"record {record.index}: reads {address}; inputs at addresses cannot be repeated; run it by hand")


def _check_computes(index: int, words: Sequence[str], outputs: Sequence[Mapping[str, Json]]) -> None:
    """Refuse a command that does more than compute: another verb, a cluster, or a place to write that was not recorded."""
    if any("\0" in word for word in (*words, *map(_name, outputs))):
        raise UsageError(f"record {index}: holds a word that no command line can hold")
    verb, context = _parsed(index, words)
    if verb not in COMPUTING:
        raise UsageError(f"record {index}: taut {verb} is not run again: only {', '.join(COMPUTING)} are, which only compute")
    if context.params.get(CLUSTER) not in (None, LOCAL):
        raise UsageError(f"record {index}: ran on a cluster (--{CLUSTER}); run it again by hand")
    written = {os.path.abspath(_name(one)) for one in outputs}
    for param in context.command.params:
        given = context.params.get(param.name or "") if isinstance(param.type, Target) else None
        for place in given if isinstance(given, (list, tuple)) else [given]:
            if isinstance(place, str) and place != "-" and os.path.abspath(place) not in written:
                raise UsageError(f"record {index}: writes to {place}, which its record does not list; run it again by hand")


def _parsed(index: int, words: Sequence[str]) -> tuple[str, click.Context]:
    """The verb of a command line, and its options; nothing is run."""
    from taut.cli import main

    try:
        outer = main.make_context("taut", list(words))
        name, verb, rest = main.resolve_command(outer, [*outer._protected_args, *outer.args])
        context = outer
        while isinstance(verb, click.Group):
            context = verb.make_context(name, rest, parent=context)
            _, verb, rest = verb.resolve_command(context, [*context._protected_args, *context.args])
        if name is None or verb is None:
            return " ".join(words[:1]), outer
        return name, verb.make_context(name, rest, parent=context)
    except (click.ClickException, click.exceptions.Exit, click.Abort):
        raise UsageError(f"record {index}: {shlex.join(words)!r} is no command of this version of taut") from None


def _check_agreed(index: int, words: Sequence[str], agreed: bool) -> None:
    """Show the command, and go on only if whoever asked agrees."""
    say(f"record {index}: taut {shlex.join(words)}")
    if agreed:
        return
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"record {index}: --again asks before it runs that command; without a terminal give --yes")
    if not click.confirm("run it again in a scratch folder?", err=True):
        click.get_current_context().exit(FAILED)


def _standard_input(index: int, read: Sequence[Mapping[str, Json]]) -> bytes:
    """What the command read on standard input, given once more."""
    how = f"give it once more: taut audit why {index} --again --yes < FILE"
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"record {index}: read standard input, which is not kept; {how}")
    given = sys.stdin.buffer.read()
    if hashlib.sha256(given).hexdigest() not in [one.get("sha256") for one in read]:
        raise UsageError(f"record {index}: standard input is not what was read then; {how}")
    return given


def _compared(record: AuditRecord, words: list[str], given: bytes, scratch: Path) -> AuditAgain:
    inputs, outputs = ([*_parts(record.details, key)] for key in ("inputs", "outputs"))
    named = [_name(one) for one in outputs]
    moved = {name: str(scratch / f"out{k}" / Path(name).name) for k, name in enumerate(named) if os.path.isabs(name)}
    for place in moved.values():
        Path(place).parent.mkdir()
    words = [_into_scratch(word, moved) for word in words]
    if any(place not in " ".join(words) for place in moved.values()):
        raise UsageError(f"record {record.index}: writes to a place that its arguments do not name; run it again by hand")
    here = _linked([_name(one) for one in inputs], named, scratch)
    log = scratch / "again.db"
    done = ran(["--audit", str(log), *words], here, _environment(scratch), given)
    if done.returncode != record.details.get("code"):
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise AuditError(f"record {record.index}: run again it ends with exit code {done.returncode}: {last}")
    _check_read(record, log)
    before, now = dict(_before(record, outputs)), dict(_now(record, outputs, moved, here, done.stdout))
    differs = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return AuditAgain(record=record.index, same=not differs, compared=sorted(before), differs=differs)


def _environment(scratch: Path) -> dict[str, str]:
    """The environment without variables of taut's, secrets among them, and with a configuration of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    return {**kept, SWITCH: "on", "XDG_CONFIG_HOME": str(scratch)}


def ran(words: list[str], here: Path, env: Mapping[str, str], given: bytes) -> subprocess.CompletedProcess[bytes]:
    """A command of taut's in a process of its own."""
    command = [sys.executable, "-m", "taut", *words]
    return subprocess.run(command, cwd=here, env=env, input=given, capture_output=True, check=False)


def _without_log(words: Sequence[str]) -> list[str]:
    """Words without ``--audit FILE``: what is run again is not to be recorded there once more."""
    kept: list[str] = []
    for k, word in enumerate(words):
        if word != "--audit" and not word.startswith("--audit=") and (k == 0 or words[k - 1] != "--audit"):
            kept.append(word)
    return kept


def _is_many(record: AuditRecord) -> bool:
    """Whether a record holds one digest of all files that were read."""
    files = record.details.get("files_read")
    return isinstance(files, int) and files > MOST_FILES


def _check_read(record: AuditRecord, log: Path) -> None:
    """Refuse where other files were read this time; of very many, one digest of all does not say which."""
    from taut.audit.log import open_log
    from taut.audit.trail import shown

    with open_log(log) as opened:
        last = shown(opened.entries()[-1]).details
    now, then = (sorted(str(one.get("sha256")) for one in _parts(told, "read")) for told in (last, record.details))
    if now != then:
        files = f"{record.details.get('files_read')} files were read then, {last.get('files_read')} now"
        raise UsageError(f"record {record.index}: what lies in its folders is not what was read then ({files}); bring it back")


def _before(record: AuditRecord, outputs: Sequence[Mapping[str, Json]]) -> Iterator[tuple[str, Json]]:
    """(name, digest) of all that was written and printed, as recorded."""
    for one in outputs:
        files = one.get("files")
        yield from _under(_name(one), files if isinstance(files, dict) else {"": one.get("sha256")})
    if record.details.get("printed") is not None:
        yield PRINTED, record.details["printed"]


def _now(
    record: AuditRecord, outputs: Sequence[Mapping[str, Json]], moved: Mapping[str, str], here: Path, printed: bytes
) -> Iterator[tuple[str, Json]]:
    """The same of what was written and printed now."""
    for name in map(_name, outputs):
        path = here / moved.get(name, name)
        yield from _under(name, sealed(path) if is_run_folder(path) else {"": file_digest(path)})
    if record.details.get("printed") is not None:
        yield PRINTED, hashlib.sha256(printed).hexdigest()


def _under(name: str, files: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    return ((f"{name}/{file}" if file else name, digest) for file, digest in files.items())


def _into_scratch(word: str, moved: Mapping[str, str]) -> str:
    """An argument with the place in the scratch folder for one to write to."""
    name = next((one for one in moved if word == one or (word.startswith("-") and word.endswith(one))), None)
    return word if name is None else word.removesuffix(name) + moved[name]


def _linked(inputs: Sequence[str], outputs: Sequence[str], scratch: Path) -> Path:
    """A folder in which the relative names of inputs lead to them, as deep as names lead upwards."""
    relative = [os.path.normpath(name) for name in (*inputs, *outputs) if not os.path.isabs(name)]
    here = scratch.joinpath("work", *["in"] * max((Path(name).parts.count("..") for name in relative), default=0))
    here.mkdir(parents=True)
    for name in outputs:
        if not os.path.isabs(name):
            Path(os.path.normpath(here / name)).parent.mkdir(parents=True, exist_ok=True)
    for name in {os.path.normpath(name) for name in inputs if not os.path.isabs(name) and os.path.lexists(name)}:
        place = Path(os.path.normpath(here / name))
        place.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(place):
            place.symlink_to(Path(name).absolute())
    return here


def _check_apart(index: int, inputs: Sequence[Mapping[str, Json]], outputs: Sequence[Mapping[str, Json]]) -> None:
    """Refuse what would write into an input, or reads the folder that it is run in."""
    given = [Path(os.path.abspath(_name(one))) for one in inputs]
    if any(Path(os.path.abspath(_name(out))).is_relative_to(place) for out in outputs for place in given):
        raise UsageError(f"record {index}: writes into its own input; run it again by hand, on a copy")
    if any(Path.cwd().is_relative_to(place) for place in given):
        raise UsageError(f"record {index}: reads the current folder; run taut audit why --again from outside it")


def _check_inputs(record: AuditRecord, inputs: Sequence[Mapping[str, Json]]) -> None:
    """Refuse inputs that are not what was read then, and name them."""
    for one in inputs:
        path, digest = Path(_name(one)), one.get("sha256")
        now = sealed(path)[RUN] if is_run_folder(path) else file_digest(path)
        if one.get("what") in ("run", "file") and (digest is None or now != digest):
            why = "its digest was not recorded (over 64 MiB)" if digest is None else "is not what was read then, or not there"
            raise UsageError(f"record {record.index}: {path}: {why}; bring it back, and ask from the folder of the command")
    folders = [Path(_name(one)) for one in inputs if one.get("what") == "folder"]
    if folders and not _is_many(record):
        _check_folders(record.index, folders, [*_parts(record.details, "read")])


def _check_folders(index: int, folders: Sequence[Path], read: Sequence[Mapping[str, Json]]) -> None:
    """Refuse folders that lack a file that was read in them, by name and digest."""
    there = {(path.name, file_digest(path)) for folder in folders for path in folder.rglob("*") if path.is_file()}
    for one in read:
        if _name(one) != STDIN and (Path(_name(one)).name, one.get("sha256")) not in there:
            raise UsageError(f"record {index}: {_name(one)}: is not what was read then, or not there; bring it back")


def _list(told: Mapping[str, Json], key: str) -> list[Json]:
    found = told.get(key)
    return found if isinstance(found, list) else []


def _parts(told: Mapping[str, Json], key: str) -> Iterator[Mapping[str, Json]]:
    return (one for one in _list(told, key) if isinstance(one, dict))


def _name(one: Mapping[str, Json]) -> str:
    name = one.get("name")
    if not isinstance(name, str):
        raise UsageError("a name in the record was redacted: it cannot be run again")
    return name
