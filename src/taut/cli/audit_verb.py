"""``taut audit``: what was seen, what was decided on it, by whom, whether it came true; and proof of all that."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut import __version__
from taut.cli.common import print_object, say, show, write_out
from taut.cli.recording import LOG, audit_file, log_path
from taut.core.errors import DamagedLog, UsageError

if TYPE_CHECKING:
    from datetime import datetime

NOT_OK = 5

where_option = click.option(
    "--audit",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    expose_value=False,
    callback=audit_file,
    help="The log  [default: ./taut-runs/audit.db]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No hints on stderr.")


@click.group(short_help="Show and prove what was seen, decided, and came of it.")
def audit() -> None:
    """Show and prove what was seen, what was decided on it, by whom, and what came of it.

    Every verb leaves a record in ./taut-runs/audit.db: its inputs and outputs by digest, options, version and seed.
    """


@audit.command(short_help="Check that nothing recorded was changed, dropped or reordered.")
@click.argument("place", metavar="[RUN|FOLDER|PROOF]", default=str(LOG.parent), type=click.Path())
@where_option
@click.option("--key", metavar="KEY", help="Anchor: the key that must have signed (NAME+ID+DATA, as audit proof --key prints).")
@click.option("--checkpoint", metavar="FILE", type=click.Path(), help="Anchor: a checkpoint that was kept elsewhere.")
@click.option("--witness", metavar="KEY", help="Anchor: the key of a witness that must have cosigned.")
@json_option
def verify(place: str, key: str | None, checkpoint: str | None, witness: str | None, as_json: bool) -> None:
    """Check that nothing recorded was changed, dropped or reordered; of a run also its files and its proof.

    Consistent is what fits together. Anchored is what also fits something that the keeper of the log cannot change: a key,
    a checkpoint kept elsewhere, a witness. Exit 5 where anything does not fit. With an anchor, a run or a proof.txt that was
    taken away from its log is checked by itself.

    \b
      taut audit verify
      taut audit verify taut-runs/job-1a2b3c4d --key "$(cat ops.key)"
      taut audit verify --checkpoint last-quarter.txt --json
    """
    from taut.audit.note import key_of
    from taut.audit.trail import verify_place
    from taut.audit.verify import Anchors
    from taut.render.audit_screen import render_verification

    anchors = Anchors(
        key=None if key is None else key_of(key),
        checkpoint=None if checkpoint is None else _text(checkpoint),
        witness=None if witness is None else key_of(witness),
    )
    found = verify_place(Path(place), _named_log(), anchors if key or checkpoint or witness else None)
    print_object(found) if as_json else show(render_verification, found)
    if not found.ok:
        click.get_current_context().exit(NOT_OK)


def _named_log() -> Path | None:
    """The log that ``--audit`` names."""
    place = log_path(click.get_current_context())
    return None if place == LOG else place


def _text(path: str) -> str:
    from taut.core.folder import read_file

    try:
        return read_file(Path(path), 1 << 20).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a checkpoint ({error}); give the file of a signed checkpoint") from None


@audit.command("log", short_help="List the records.")
@where_option
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N.")
@json_option
def list_records(last: int | None, as_json: bool) -> None:
    """List the records, oldest first."""
    from taut.audit.log import open_log
    from taut.audit.trail import listed
    from taut.render.audit_screen import render_log

    with open_log(log_path(click.get_current_context())) as log:
        result = listed(log, last)
    print_object(result) if as_json else show(render_log, result)


@audit.command(short_help="Show what a run, decision or outcome rests on.")
@click.argument("target", metavar="RUN|RECORD")
@where_option
@click.option("--again", is_flag=True, help="Run its command again in a scratch folder, and compare the bytes.")
@click.option("--yes", is_flag=True, help="Do not ask before --again runs the command.")
@json_option
def why(target: str, again: bool, yes: bool, as_json: bool) -> None:
    """Show what a run, a decision or an outcome rests on, down to the digests of what was read.

    RUN is a run folder, RECORD the number of a record (taut audit log lists them). --again repeats only what you recorded
    yourself, only verbs that compute, and only files: no address, no cluster. It shows the command and asks. Use it in the
    folder that the command was given in; it is refused where an input is not what it was. Exit 5 where the bytes differ.
    """
    from msgspec.structs import replace

    from taut.audit.log import open_log
    from taut.audit.trail import body_of, found_log
    from taut.audit.trail import why as chain
    from taut.audit.trust import is_own_record
    from taut.audit.verify import verify as check
    from taut.render.audit_screen import render_why

    if yes and not again:
        raise UsageError("--yes answers what --again asks: give both")
    number = _number(target)
    path = log_path(click.get_current_context()) if number is not None else found_log(Path(target), _named_log())
    with open_log(path) as log:
        place = Path(target) if number is None else number
        result = chain(log, place)
        is_own = again and is_own_record(body_of(log, place, result.chain[0].record.index))
        if again:
            log.check_known()
    if again and not (found := check(path)).ok:
        raise DamagedLog(f"{path}: nothing is run again from a log that does not verify: {found.says}")
    if again:
        from taut.cli.again import run_again

        result = replace(result, again=run_again(result.chain[0].record, is_own, yes))
    print_object(result) if as_json else show(render_why, result)
    if result.again is not None and not result.again.same:
        click.get_current_context().exit(NOT_OK)


def _number(target: str) -> int | None:
    return int(target) if target.isascii() and target.isdigit() and len(target) < 16 else None


@audit.command(short_help="Print the proof of a record, a signed checkpoint, or the key.")
@click.argument("target", metavar="[RUN|RECORD]", required=False)
@where_option
@click.option("--key", "only_key", is_flag=True, help="Print the key that verifies this log's signatures instead.")
def proof(target: str | None, only_key: bool) -> None:
    """Print the proof that a record lies in the log; of a run folder, also write its proof.txt again.

    Without RUN or RECORD: a signed checkpoint of the whole log, to be kept elsewhere. Forms: c2sp.org/tlog-checkpoint and
    c2sp.org/tlog-proof, which tools of others verify too.

    \b
      taut audit proof > kept-elsewhere.txt
      taut audit proof 17
      taut audit proof --key
    """
    from taut.audit.key import signing_key
    from taut.audit.log import open_log
    from taut.audit.note import public_key

    number = None if target is None else _number(target)
    path = log_path(click.get_current_context())
    if target is not None and number is None:
        write_out(_proof_of_run(Path(target)))
        return
    with open_log(path, __version__) as log:
        log.check_known()
        key = signing_key()
        if only_key:
            write_out(f"{public_key(log.origin(), key)}\n")
        else:
            write_out(log.sign(key) if number is None else str(log.proof(number, key)))


def _proof_of_run(run: Path) -> str:
    """A new proof of a run's record, which also replaces the one in its folder; a record that was pruned stays in it."""
    from msgspec.structs import replace

    from taut.audit.key import signing_key
    from taut.audit.log import open_log
    from taut.audit.trail import found_log, proven
    from taut.core.folder import PROOF
    from taut.core.whole_file import whole_file

    with open_log(found_log(run, _named_log()), __version__) as log:
        entry = proven(log, run)
        text = str(replace(log.proof(entry.index, signing_key()), record=entry.body or b""))
    with whole_file(run / PROOF) as out:
        out.write(text.encode())
    return text


@audit.command(short_help="Use a log that somebody else began; or list the logs that you use.")
@click.argument("log", metavar="[LOG]", required=False, type=click.Path())
@click.option("--remove", metavar="LOG", type=click.Path(), help="Neither append to LOG nor sign it any more.")
@json_option
@quiet_option
def adopt(log: str | None, remove: str | None, as_json: bool, quiet: bool) -> None:
    """Append to a log that somebody else began, and sign it, from now on; shows whose key signed it so far.

    taut appends only to logs that you began or adopted. LOG is the file, or the folder of runs that it lies in. A log that
    does not verify is refused. Records that others wrote stay theirs: --again does not run them. Without LOG, the logs that
    you use are listed.

    \b
      taut audit adopt shared-runs/audit.db
      taut audit adopt
      taut audit adopt --remove shared-runs/audit.db
    """
    from taut.audit import adoption
    from taut.render.audit_screen import render_adopt

    if log is not None and remove is not None:
        raise UsageError("--remove LOG names the log itself: give it without another LOG")
    if remove is not None:
        origin = adoption.remove(Path(remove))
        if not quiet:
            say(f"removed: {origin}; taut neither appends to this log nor signs it any more")
        return
    result = adoption.listed() if log is None else adoption.adopt(Path(log))
    print_object(result) if as_json else show(render_adopt, result)


@audit.command(short_help="Take names and free text out of a record; proofs still hold.")
@click.argument("record", metavar="RECORD", type=click.IntRange(min=0))
@where_option
@click.option("--text", "places", metavar="PLACE", multiple=True, help="Only this text (by, inputs/0/name); may be repeated.")
@click.option("--because", default="", help="Why; recorded, and can be redacted itself.")
@quiet_option
def redact(record: int, places: tuple[str, ...], because: str, quiet: bool) -> None:
    """Take names and free text out of a record. That they are gone is recorded, and every proof still holds."""
    from taut.audit.log import open_log
    from taut.audit.retention import redact as take_out

    with open_log(log_path(click.get_current_context()), __version__) as log:
        done = take_out(log, record, places, because)
    if not quiet:
        say(f"redacted: record {record}, as record {done.index} tells; copies of the log and proofs elsewhere are not changed")


@audit.command(short_help="Take out records from before a day; their hashes stay.")
@click.option("--before", metavar="DAY", required=True, type=click.DateTime(["%Y-%m-%d"]), help="Such as 2026-01-31, UTC.")
@where_option
@quiet_option
def prune(before: datetime, quiet: bool) -> None:
    """Take out the records from before a day. Their hashes stay, so proofs that people hold can still be checked.

    A log that does not verify is left as it is.
    """
    from taut.audit.log import open_log
    from taut.audit.retention import prune as take_out
    from taut.audit.verify import verify as check

    path = log_path(click.get_current_context())
    found = check(path)
    if not found.ok:
        raise DamagedLog(f"{path}: nothing is taken out of a log that does not verify: {found.says}")
    with open_log(path, __version__) as log:
        done = take_out(log, f"{before:%Y-%m-%d}")
    if not quiet:
        say("pruned: nothing is that old" if done is None else f"pruned: as record {done.index} tells")
