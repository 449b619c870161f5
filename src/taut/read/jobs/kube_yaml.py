"""YAML as ``kubectl -o yaml`` prints it: blocks of keys and lists by their indentation, text plain, quoted or in blocks.

Flow style is read as JSON, anchors, tags and keys of several lines not at all: no such file holds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from taut.core.array_types import Json

# Objects inside one another: those of Kubernetes have a dozen.
DEPTH = 64
_BLOCK = re.compile(r"([|>])([+-]?)\d?([+-]?)\s*+(?:#.*)?$")
_PLAIN: dict[str, Json] = {"null": None, "~": None, "": None, "true": True, "false": False}


def documents(text: str) -> Iterator[Json]:
    """What the documents of a file hold."""
    for part in re.split(r"(?m)^---.*$", text.removeprefix("\ufeff").replace("\r\n", "\n")):
        lines = _Lines(part)
        if lines.indent() >= 0:
            yield lines.node(lines.indent(), 0)


class _Lines:
    """Lines that are read from top to bottom."""

    def __init__(self, text: str) -> None:
        self.lines = [line.rstrip() for line in text.split("\n")]
        self.at = 0

    def indent(self) -> int:
        """Where the next line that holds something begins; -1 behind the last."""
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.lstrip(" ")
            if bare and not bare.startswith("#"):
                return len(line) - len(bare)
            self.at += 1
        return -1

    def node(self, indent: int, depth: int) -> Json:
        """The list, the mapping or the text that begins at this indentation."""
        if depth > DEPTH:
            raise RecursionError
        line = self.lines[self.at][indent:]
        if line == "-" or line.startswith("- "):
            return self._list(indent, depth)
        if _pair(line):
            return self._mapping(indent, depth)
        self.at += 1
        return self._scalar(line, indent - 1)

    def _list(self, indent: int, depth: int) -> list[Json]:
        found: list[Json] = []
        while self.indent() == indent and (self.lines[self.at][indent:] + " ").startswith("- "):
            rest = self.lines[self.at][indent + 1 :]
            inner = len(rest) - len(rest.lstrip(" "))
            if not rest.strip():
                self.at += 1
                found.append(self._below(indent, depth))
                continue
            # The dash stands in the place of a space: what follows it is a block of its own.
            self.lines[self.at] = " " * (indent + 1 + inner) + rest.lstrip(" ")
            found.append(self.node(indent + 1 + inner, depth + 1))
        return found

    def _mapping(self, indent: int, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        while self.indent() == indent and (pair := _pair(self.lines[self.at][indent:])):
            key, rest = pair
            self.at += 1
            found[key] = (
                self._scalar(rest, indent) if rest and not rest.startswith("#") else self._below(indent, depth, lists=True)
            )
        return found

    def _below(self, indent: int, depth: int, lists: bool = False) -> Json:
        """What lies under a key or a dash that has nothing behind it; a list may begin as far left as its key."""
        inner = self.indent()
        if inner > indent or (lists and inner == indent and (self.lines[self.at][indent:] + " ").startswith("- ")):
            return self.node(inner, depth + 1)
        return None

    def _scalar(self, text: str, indent: int) -> Json:
        """A value, with the lines that belong to it: those that are further to the right than its key."""
        if block := _BLOCK.match(text):
            return self._block(indent, folded=block[1] == ">", keep="-" not in block[2] + block[3])
        if text[0] in "[{":
            try:
                found: Json = json.loads(text)
                return found
            except ValueError:
                return None
        parts = [text]
        quote = text[0] if text[0] in "\"'" else ""
        marks = _marks(text, quote)
        while self.at < len(self.lines) and not (quote and marks % 2 == 0 and parts[-1].endswith(quote)):
            line = self.lines[self.at]
            if line and len(line) - len(line.lstrip(" ")) <= indent:
                break
            if not line and not quote and self.indent() <= indent:
                break
            if line:
                parts.append(line.strip())
                marks += _marks(parts[-1], quote)
            self.at += 1
        return _quoted(" ".join(parts))

    def _block(self, indent: int, *, folded: bool, keep: bool) -> str:
        parts: list[str] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if line and len(line) - len(line.lstrip(" ")) <= indent:
                break
            parts.append(line)
            self.at += 1
        left = min((len(line) - len(line.lstrip(" ")) for line in parts if line), default=0)
        text = (" " if folded else "\n").join(line[left:] for line in parts).rstrip()
        return text + "\n" if keep else text


def _marks(text: str, quote: str) -> int:
    """Quotation marks that open or close a text; those that stand for themselves come in pairs, or behind a backslash."""
    if not quote:
        return 0
    return text.count(quote) if quote == "'" else len(re.sub(r"\\.", "", text).split('"')) - 1


def _pair(line: str) -> tuple[str, str] | None:
    """A key, and what stands behind it; None for a line without a key."""
    if line[:1] in ("", "[", "{", "#", ","):
        return None
    end = line.find(line[0], 1) + 1 if line[0] in "\"'" else 0
    if line[0] in "\"'" and not end:
        return None
    colon = line.find(": ", end)
    colon = colon if colon >= 0 else len(line) - 1 if line.endswith(":") else -1
    if colon < 0 or (end and line[end:colon].strip()):
        return None
    return str(_quoted(line[:colon].strip())), line[colon + 1 :].strip()


def _quoted(text: str) -> Json:
    """The value of a plain or quoted text."""
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] == '"':
        try:
            return str(json.loads(text))
        except ValueError:
            return text.strip('"')
    text = re.sub(r"\s#.*$", "", text)
    if text in _PLAIN:
        return _PLAIN[text]
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
