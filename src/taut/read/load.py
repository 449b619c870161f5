"""Members → what they hold: every file is recognised by its first bytes."""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from msgspec import Struct

from taut.core.boundary import refusing_unexpected
from taut.core.errors import InputRefused, TooLarge
from taut.read import files, pasted
from taut.read.columns import paused_gc
from taut.read.contents import Contents
from taut.read.windows_text import BOM

LEAVE = "leave it out, or report it if other tools read it"
# The beginning of JSON, XML or HTML, which is known by its first bytes or not at all.
_DOCUMENT = re.compile(rb'\s*(?:[\[{]\s*["{\[\]}]|<[?!a-zA-Z])')
# Columns of an unknown table that are named at most.
COLUMNS = 12
OBJECT, LIST = b"{", b"["


class Format(Struct, frozen=True):
    """One format: its name, and its module in this room, which is imported when its turn comes to be asked.

    The module has ``sniff(head)``, whether these first bytes are of this format, and ``load(data, label)``, what the bytes of
    a file hold; or, for a file that is streamed or opened where it lies, ``load_member(member)``.
    """

    name: str
    module: str
    by_member: bool = False
    """Whether its module has ``load_member``."""
    anywhere: bool = False
    """Whether its module has ``sniff_text``, which is asked about the whole of a text whose first bytes nobody knows."""
    begins: tuple[bytes, ...] = ()
    """What all its files begin with, behind blanks, one of these: for others its module is not even imported."""

    def knows(self, head: bytes) -> bool:
        """Whether these first bytes are of this format."""
        if self.begins and not head.removeprefix(BOM).lstrip().startswith(self.begins):
            return False
        return bool(self.reader.sniff(head))

    @property
    def reader(self) -> ModuleType:
        """The module."""
        return import_module(f"taut.read.{self.module}")

    def load(self, member: files.Member) -> Contents:
        """What a file of this format holds."""
        reader = self.reader
        found: Contents = reader.load_member(member) if self.by_member else reader.load(member.read(), member.label)
        return found


# Every format, in the order in which they are asked: the stricter first, and what most people have.
FORMATS = (
    Format("nsys", "nsys.reader", by_member=True, begins=(b"SQLite",)),
    Format("xla viewer", "xplane.trace_json", by_member=True, begins=(OBJECT,)),
    Format("kineto", "kineto.reader", by_member=True, begins=(OBJECT, LIST)),
    Format("op table", "op_table", by_member=True),
    Format("step times", "step_times", by_member=True),
    Format("flight", "flight.reader", begins=(OBJECT, b"\x80")),
    Format("otf2", "otf2.reader", by_member=True, begins=(b"\x03",)),
    Format("xplane", "xplane.reader"),
    Format("otlp", "otlp.reader", begins=(OBJECT, LIST)),
    Format("jaeger", "otlp.jaeger", begins=(OBJECT, LIST)),
    Format("zipkin", "otlp.zipkin", begins=(LIST,)),
    Format("agent spans", "otlp.agent_spans", begins=(OBJECT, LIST)),
    Format("inspector", "flight.inspector", begins=(OBJECT,)),
    Format("chakra", "chakra.reader"),
    Format("execution", "chakra.execution", begins=(OBJECT,)),
    Format("kube audit", "actions.kube_audit", begins=(OBJECT, LIST)),
    Format("node autoscaler", "actions.node_autoscalers"),
    Format("action table", "actions.action_table"),
    Format("ray serve", "actions.ray_serve"),
    Format("progress", "jobs.progress_log"),
    Format("metrics", "metrics.reader"),
    Format("sacct", "jobs.sacct"),
    Format("sacct json", "jobs.sacct_json", begins=(OBJECT,)),
    Format("slurmctld", "jobs.slurmctld"),
    Format("pbs", "jobs.pbs"),
    Format("lsf", "jobs.lsf"),
    Format("kubernetes", "jobs.kubernetes_events"),
    Format("kubectl", "jobs.kubectl_text"),
    Format("job table", "jobs.job_table"),
    Format("trainer state", "jobs.trainer_state", begins=(OBJECT,)),
    Format("training log", "jobs.training_log", anywhere=True),
    Format("action lines", "actions.action_lines"),
)
# What nsys itself keeps, and only it can open.
REPORTS = (".nsys-rep", ".qdrep")


class Part(Struct):
    """What one member holds, why it was refused, or None where no reader knows it."""

    label: str
    found: Contents | InputRefused | None
    columns: tuple[str, ...] = ()
    """Columns of a table that nobody knows."""
    is_empty: bool = False


class Loaded(Struct):
    """The parts of one input, and what its digest takes into account."""

    parts: list[Part]
    digest: str = ""
    """Name and hash of an input that was used, or why it was refused; empty for one that nobody knows."""


def load_file(path: str, columns: str = "", label: str = "", data: bytes | None = None) -> Loaded:
    """The parts of one input; a refusal, foreseen or not, is one of them, so that the other inputs are still read.

    ``columns`` names those of rows without a header; ``label`` is what messages call it, its path if not given;
    ``data`` are its bytes, where they are here already.
    """
    parts: list[Part] = []
    with files.Source(path, label, data) as source:
        try:
            with _refusing(source.label):
                for member in source.members():
                    with paused_gc():
                        parts += _load_member(member, columns)
        except InputRefused as refusal:
            parts.append(Part(refusal.where, refusal))
        return Loaded(parts, _digest(source, parts))


def _digest(source: files.Source, parts: list[Part]) -> str:
    name = os.path.basename(source.path) if os.path.isfile(source.path) else ""
    refused = [part.found.why for part in parts if isinstance(part.found, InputRefused)]
    if len(refused) == sum(part.found is not None for part in parts):
        return "\0".join((name, *refused)) if refused else ""
    try:
        return f"{name}\0{source.digest()}"
    except (OSError, tarfile.TarError, InputRefused):  # cut short: what it was read up to is in its parts
        return f"{name}\0{len(parts)}"


@contextmanager
def _refusing(label: str) -> Iterator[None]:
    """The boundary of every file: whatever goes wrong while it is read is a refusal of that file."""
    try:
        with refusing_unexpected(
            lambda why: InputRefused(label, f"unreadable as the format it seems to be ({brief(why)})", LEAVE)
        ):
            yield
    except MemoryError:
        raise TooLarge(label, "needs more memory than there is", "profile fewer steps, or use a larger machine") from None


def brief(why: str) -> str:
    """An unforeseen reason in one short line."""
    return " ".join(why.split())[:120]


def _load_member(member: files.Member, columns: str = "") -> list[Part]:
    """What a member holds; of what was pasted behind prompts or in fences, each piece."""
    try:
        with _refusing(member.label):
            if pasted.is_quoted(member.head):
                member = _holding(member, pasted.without_quotes(member.read()))
            if pasted.is_grepped(member.head):
                member = _holding(member, pasted.without_grep(member.read()))
            if not pasted.is_pasted(member.head):
                return [_recognised(member, columns)]
            data = member.read()
            whole = _recognised(_holding(member, data), columns)
            pieces = [] if whole.found is not None else [_holding(member, piece) for piece in pasted.outputs(data)]
    except InputRefused as refusal:
        return [Part(member.label, refusal)]
    parts = [_loaded_piece(piece, columns) for piece in pieces]
    return [one for one in parts if one.found is not None] or [whole]


def _loaded_piece(piece: files.Member, columns: str) -> Part:
    try:
        with _refusing(piece.label):
            return _recognised(piece, columns)
    except InputRefused as refusal:
        return Part(piece.label, refusal)


def _holding(member: files.Member, data: bytes) -> files.Member:
    """The same member with other bytes."""
    return files.Member(member.label, data[: files.HEAD_BYTES], io.BufferedReader(io.BytesIO(data)))


def _recognised(member: files.Member, columns: str = "") -> Part:
    """What the first reader that knows a member makes of it; ``columns`` are those of rows without a header."""
    try:
        if columns and (sacct := import_module("taut.read.jobs.sacct")).is_row(_first_line(member.head)):
            return Part(member.label, sacct.load(sacct.with_columns(member.read(), columns, member.label), member.label))
        if member.name.lower().endswith(REPORTS):
            from taut.read.nsys import reader as nsys

            if nsys.is_report(member):
                return Part(member.label, None)
        for one in FORMATS:
            if one.knows(member.head):
                return Part(member.label, one.load(member))
        if text := _text_of(member):
            for one in FORMATS:
                if one.anywhere and one.reader.sniff_text(text):
                    return Part(member.label, one.reader.load(text, member.label))
    except (OSError, tarfile.TarError) as error:
        raise files.unreadable(member.label, error) from None
    return Part(member.label, None, columns=_columns(member.head), is_empty=not member.head)


def _text_of(member: files.Member) -> bytes:
    """All of a long text whose beginning nobody knows; nothing if it is binary, a document, or too large to be held."""
    if len(member.head) < files.HEAD_BYTES - len(BOM) or b"\x00" in member.head or _DOCUMENT.match(member.head):
        return b""
    try:
        return member.read()
    except TooLarge:
        return b""


def _first_line(head: bytes) -> str:
    return head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")


def _columns(head: bytes) -> tuple[str, ...]:
    """The names in the header of something that looks like a CSV table."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    names = tuple(name.strip().strip('"') for name in line.split(",")[:COLUMNS])
    return names if len(names) > 1 and all(re.fullmatch(r"[\w .-]{1,40}", name) for name in names) else ()
