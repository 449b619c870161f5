"""Every verb leaves its record in the audit log, and knows nothing of it: the commands are wrapped here, in one place.

What is recorded: the verb, its options, its inputs and outputs by digest, version, seed and exit code, when it has answered.
Names and text are salted (``audit/record.py``). What cannot be recorded is one line on stderr, and the verb's answer stands.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from taut import __version__
from taut.cli.common import ARGUMENTS, FAILED, FINDINGS, Watched, reason, say, watched
from taut.cli.options import Target
from taut.core import seen_inputs
from taut.core.errors import AuditError, TautError
from taut.read.remote import shown

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from taut.audit.record import Detail

SWITCH = "TAUT_AUDIT"
LOG = Path("taut-runs") / "audit.db"
"""Where records go: beside the runs."""
PLACE = "taut.audit"
"""Key of the context's notes: what ``--audit`` said."""
ANSWERED = (0, FAILED, FINDINGS)
"""Exit codes of a verb that has answered; FAILED, where only keeping the answer failed."""
UNRECORDED = ("audit", "serve", "top")
"""Verbs that write records of their own, or only read them; one of which an option is a secret; one that shows a moment."""
STDIN = "standard input"
MOST_FILES = 256
"""Files of one input that are recorded one by one."""
MOST_BYTES = 64 << 20
"""A file that no reader has hashed is hashed here up to this size: recording is to take no time."""
Value: TypeAlias = "bool | int | float | str | Sequence[Value] | None"


def record_all(group: click.Group) -> None:
    """Have every command of a group, and of the groups in it, leave its record."""
    for command in group.commands.values():
        recorded(command)


def recorded(command: click.Command) -> None:
    """Have a command, or every command of a group, leave its record."""
    if command.name in UNRECORDED:
        return
    if isinstance(command, click.Group):
        record_all(command)
    elif command.callback is not None:
        command.params.append(click.Option(["--audit"], hidden=True, expose_value=False, callback=audit_file))
        command.callback = _recorded(command.callback)


def audit_file(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """``--audit FILE``: before the verb or behind it."""
    if value is not None:
        context.meta[PLACE] = value


def log_path(context: click.Context) -> Path:
    """Where records go."""
    return Path(str(context.meta[PLACE])) if PLACE in context.meta else LOG


def _recorded(verb: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(verb)
    def run(*args: object, **options: Value) -> object:
        if os.environ.get(SWITCH, "").lower() in ("off", "0", "no"):
            return verb(*args, **options)
        context = click.get_current_context()
        with seen_inputs.collected() as seen, watched() as done:
            try:
                answer = verb(*args, **options)
            except click.exceptions.Exit as ended:
                if ended.exit_code in ANSWERED:
                    _try(context, options, seen, done, ended.exit_code)
                raise
        _try(context, options, seen, done, 0)
        return answer

    return run


def _try(context: click.Context, options: dict[str, Value], seen: Sequence[seen_inputs.Seen], done: Watched, code: int) -> None:
    """Record, or say why not; a verb that only prints what ships with taut leaves nothing."""
    if not (seen or done.kept or _has_inputs_or_outputs(context, options)):
        return
    try:
        _record(context, options, seen, done, code)
    except Exception as error:
        if os.environ.get("TAUT_DEBUG"):
            raise
        say(f"taut: not recorded: {error if isinstance(error, TautError) else reason(error)} ({SWITCH}=off records nothing)")


def _record(
    context: click.Context, options: dict[str, Value], seen: Sequence[seen_inputs.Seen], done: Watched, code: int
) -> None:
    from taut.audit.log import NO_CONFIGURATION, open_log
    from taut.audit.record import VERB, Text
    from taut.audit.trust import is_kept
    from taut.core.folder import PROOF, is_run_folder
    from taut.core.whole_file import whole_file

    if not is_kept():
        raise AuditError(NO_CONFIGURATION)
    given = map(Path, _paths(context, options, outputs=True))
    written = [*done.kept, *(path for path in given if path not in done.kept)]
    runs = [path for path in written if is_run_folder(path)]
    details: dict[str, Detail] = {
        "verb": " ".join(context.command_path.split()[1:]),
        "options": _settings(context, options),
        "inputs": [_input(path) for path in _paths(context, options, outputs=False)],
        "read": _read(seen),
        "files_read": len(seen),
        "outputs": [_output(path) for path in written if path.exists()],
        "seed": None if options.get("seed") is None else str(options["seed"]),
        "code": code,
        "arguments": [Text(shown(word)) for word in context.meta.get(ARGUMENTS, ())],
        "printed": done.printed,
    }
    with open_log(log_path(context), __version__, create=True) as log:
        appended = log.append(VERB, details, key=_key() if runs else None)
    if log.replaced is not None:
        say(f"taut: a new audit log begins; the one that lay here, with {log.replaced.size:,} of your records, is gone")
    if appended.unsigned:
        say(f"taut: recorded, but not signed: {appended.unsigned}")
    if appended.proof is not None:
        for run in runs:
            with whole_file(run / PROOF) as out:
                out.write(str(appended.proof).encode())


def _key() -> Ed25519PrivateKey | None:
    """The key that signs; None, and a line, where there is none to be had: the record is written all the same."""
    from taut.audit.key import signing_key

    try:
        return signing_key()
    except (TautError, ImportError, OSError) as error:
        say(f"taut: recorded, but not signed: {error}")
        return None


def _has_inputs_or_outputs(context: click.Context, options: dict[str, Value]) -> bool:
    """Whether a verb was given anything to read, standard input among it, or a file to write."""
    return any(_places(context, options, outputs=False)) or any(_paths(context, options, outputs=True))


def _paths(context: click.Context, options: dict[str, Value], outputs: bool) -> Iterator[str]:
    """Files and folders that a verb was given to read, or to write."""
    return (place for place in _places(context, options, outputs) if place != "-")


def _places(context: click.Context, options: dict[str, Value], outputs: bool) -> Iterator[str]:
    """What a verb was given to read, or to write, judged by the types of its options."""
    for param in context.command.params:
        if isinstance(param.type, click.Path) and isinstance(param.type, Target) == outputs:
            given = options.get(param.name or "")
            values = given if isinstance(given, (list, tuple)) else [given]
            yield from (value for value in values if isinstance(value, str))


def _settings(context: click.Context, options: dict[str, Value]) -> dict[str, Detail]:
    """Options that were given, but for paths, which are inputs and outputs: text is salted."""
    paths = {param.name for param in context.command.params if isinstance(param.type, click.Path)}
    given = {name: value for name, value in sorted(options.items()) if name not in paths and value not in (None, False, (), "")}
    return {name: _salted(value) for name, value in given.items()}


def _salted(value: Value) -> Detail:
    from taut.audit.record import Text

    if isinstance(value, str):
        return Text(shown(value))
    if isinstance(value, (list, tuple)):
        return [_salted(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _salted(each) for key, each in value.items()}
    return value if isinstance(value, (bool, int, float)) or value is None else Text(str(value))


def _input(path: str) -> dict[str, Detail]:
    """An input as it was named; its digest, where it is a run or a file of its own."""
    from taut.audit.record import Text
    from taut.core.folder import RUN, is_run_folder, sealed

    place = Path(path)
    what = "run" if is_run_folder(place) else "file" if place.is_file() else "folder" if place.is_dir() else "name"
    digest = sealed(place)[RUN] if what == "run" else file_digest(place) if what == "file" else None
    return {"name": Text(shown(path)), "what": what, "sha256": digest}


def _read(seen: Sequence[seen_inputs.Seen]) -> list[Detail]:
    """Files that readers opened, each by its digest; of very many, one digest of all."""
    import hashlib

    from taut.audit.record import Text

    if len(seen) <= MOST_FILES:
        return [{"name": Text(one.name or STDIN), "sha256": one.sha256} for one in seen]
    lines = "".join(sorted(f"{one.sha256}  {one.name}\n" for one in seen))
    return [{"name": Text(f"{len(seen)} files"), "sha256": hashlib.sha256(lines.encode("utf-8", "replace")).hexdigest()}]


def _output(path: Path) -> dict[str, Detail]:
    from taut.audit.record import Text
    from taut.core.folder import is_run_folder, sealed

    files: dict[str, Detail] = dict(sealed(path)) if is_run_folder(path) else {}
    return {"name": Text(str(path)), "files": files} if files else {"name": Text(str(path)), "sha256": file_digest(path)}


def file_digest(path: Path) -> str | None:
    """Of a file that is not too large; None of what is unknown."""
    import hashlib

    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
