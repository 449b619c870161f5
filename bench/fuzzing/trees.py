"""Mutations of nested values: JSON, JSON lines, TOML, pickles, and the wire format of protobuf."""

from __future__ import annotations

import json
import pickle
import pickletools
import re
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

from fuzzing.mutate import INTEGERS, TEXTS, TOKENS, lines, number_text, raw, scalar, swapped, times

Place = tuple[Any, Any]
"""A container and the key of something in it."""


def places(tree: Any) -> list[Place]:
    """Every place in a tree."""
    out: list[Place] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            out.append((node, key))
            if isinstance(value, (dict, list)):
                waiting.append(value)
    return out


def nested(rng: Random) -> Any:
    """Something deep, wide or odd."""
    inner: Any = scalar(rng)
    for _ in range(rng.choice([1, 2, 3, 60, 500])):
        inner = [inner] if rng.random() < 0.7 else {rng.choice(TEXTS[:40]): inner}
    return inner


def change(rng: Random, tree: Any) -> Any:
    """The tree, changed in place at one point; the new tree if its root changed."""
    found = places(tree)
    if not found or rng.random() < 0.02:
        return rng.choice([scalar(rng), [tree], {"x": tree}, [], {}])
    node, key = rng.choice(found)
    value = node[key]
    kind = rng.randrange(14)
    if kind <= 5:
        node[key] = scalar(rng, value)
    elif kind == 6:
        del node[key]
    elif kind == 7:
        node[key] = nested(rng)
    elif kind == 8:
        other, name = rng.choice(found)
        node[key] = (
            json.loads(json.dumps(other[name])) if not isinstance(other[name], (dict, list)) or len(found) < 400 else None
        )
    elif kind == 9:
        node[key] = rng.choice([[], {}, [value], {"value": value}, [value] * 3, [[value]], None])
    elif kind == 10 and isinstance(node, list):
        node.insert(rng.randrange(len(node) + 1), value)
    elif kind == 11 and isinstance(node, dict):
        node[rng.choice([rng.choice(TEXTS), str(key).upper(), f"{key}_ns", f" {key}"])] = node.pop(key)
    elif kind == 12 and isinstance(value, list):
        rng.shuffle(value)
    elif kind == 13 and isinstance(value, str):
        node[key] = swapped(rng, value.encode("utf-8", "surrogatepass"), NUMBERS, number_text).decode("utf-8", "replace")
    else:
        node[key] = scalar(rng, value)
    return tree


NUMBERS = re.compile(rb"\d+")


def dumped(rng: Random, tree: Any) -> bytes:
    """JSON text; sometimes printed in another way, sometimes with a key given twice."""
    try:
        form = rng.random()
        text = json.dumps(
            tree, indent=1 if form < 0.1 else None, ensure_ascii=form < 0.8, separators=(",", ":") if form > 0.9 else None
        )
    except (ValueError, RecursionError):
        return b"[" * 5000
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05 and (found := re.search(rb'"(\w+)"\s*:\s*', data)):
        data = data[: found.start()] + found[0] + dumped(rng, scalar(rng)) + b"," + data[found.start() :]
    return data


def json_tree(rng: Random, data: bytes) -> bytes:
    """One JSON document with changed values, keys and types."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return raw(rng, data)
    for _ in range(times(rng)):
        tree = change(rng, tree)
    return dumped(rng, tree)


def json_lines(rng: Random, data: bytes) -> bytes:
    """Lines of JSON, some of them with changed values, or lines moved about."""
    if rng.random() < 0.25:
        return lines(rng, data)
    rows = data.split(b"\n")
    for _ in range(times(rng)):
        at = rng.randrange(len(rows))
        rows[at] = json_tree(rng, rows[at]) if rows[at].strip() else rng.choice(TOKENS)
    return b"\n".join(rows)


def number_near(rng: Random, old: bytes) -> bytes:
    """A number that may well be accepted: of the same type, somewhat larger or smaller."""
    if b"." in old:
        return f"{float(old) * rng.choice([0, 0.1, 0.5, 1.5, 2, 10, -1]):g}".encode()
    return str(rng.choice([0, 1, 2, 3, int(old) + 1, int(old) * 2, int(old) // 2, max(int(old) - 1, 0), -int(old)])).encode()


_TOML = re.compile(rb"^(\s*[\w.\"-]+\s*=\s*)(.+?)(\s*#.*)?$")


def toml(rng: Random, data: bytes) -> bytes:
    """TOML with changed keys, values, tables and order of lines."""
    rows = data.split(b"\n")
    for _ in range(times(rng)):
        at = rng.randrange(len(rows))
        found = _TOML.match(rows[at])
        kind = rng.randrange(8)
        if found and kind <= 4:
            rows[at] = found[1] + toml_value(rng, found[2])
        elif found and kind == 5:
            rows[at] = swapped(
                rng,
                rows[at],
                re.compile(rb"[\w-]+"),
                lambda r, old: r.choice([old + b"x", old[:-1] or b"a", b"name", b"1", b'"q"']),
            )
        elif kind == 6:
            rows.insert(
                rng.randrange(len(rows) + 1),
                rng.choice([rows[at], b"[[loop]]", b"[job]", b"[a.b.c]", b"x = 1", b"a." * 50 + b"b = 1"]),
            )
        else:
            del rows[at]
            rows = rows or [b""]
    return b"\n".join(rows)


def toml_value(rng: Random, old: bytes) -> bytes:
    """A value of TOML: like the old one, extreme, or of another type."""
    kind = rng.random()
    number = NUMBERS.fullmatch(old.split(b".")[0])
    if kind < 0.5 and number:
        return number_near(rng, old)
    if kind < 0.6:
        return number_text(rng, old) if rng.random() < 0.5 else str(rng.choice(INTEGERS)).encode()
    choices = [
        b"nan", b"inf", b"-inf", b"1e300", b"1e-300", b"0.0", b"-0.0", b"true", b"[]", b"{}", b"[1, 2]", b"[[1]]",
        b'["a", 1]', b"{a = 1}", b'""',
        b'"x"', b'"\\u0000"', b"2026-01-01", b"2026-01-01T00:00:00Z", b"12:00:00", b"[" * 200 + b"]" * 200,
        b"[" + old + b"]", b'"' + old.strip(b'"') + b'"',
        b"[" + b", ".join([old] * 3) + b"]",
    ]  # fmt: skip
    return rng.choice(choices)


def pickled(rng: Random, data: bytes) -> bytes:
    """A pickle of a changed value, of another protocol, or with its opcodes moved about."""
    kind = rng.random()
    if kind < 0.5:
        try:
            tree = pickle.loads(data)  # a seed of ours
            for _ in range(times(rng)):
                tree = change(rng, tree)
            return pickle.dumps(tree, rng.choice([2, 2, 3, 4, 5]))
        except Exception:
            return raw(rng, data)
    try:
        ops = [(at, op.name) for op, _, at in pickletools.genops(data)]
    except ValueError:
        return raw(rng, data)
    ends = [at for at, _ in ops[1:]] + [len(data)]
    pieces = [data[at:end] for (at, _), end in zip(ops, ends, strict=True)]
    for _ in range(times(rng)):
        at = rng.randrange(1, len(pieces))
        _opcode(rng, pieces, at)
    return b"".join(pieces)


OPCODES = [
    b"(", b".", b"0", b"1", b"2", b"N", b"]", b"}", b")", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86", b"\x87",
    b"\x88", b"\x94", b"\x8f", b"\x90", b"\x91",
    b"K\x01", b"J\xff\xff\xff\xff", b"h\x00", b"q\x00", b"r\x00\x00\x00\x7f", b"j\xff\xff\xff\xff",
    b"G\x7f\xf8\0\0\0\0\0\0", b"X\x02\0\0\0hi", b"X\xff\xff\xff\x7f",
    b"\x8a\x09" + b"\xff" * 8 + b"\x00", b"cos\nsystem\n", b"R", b"b", b"\x95" + b"\xff" * 8, b"I01\n", b"I1\n", b"L9L\n",
    b"F1e999\n", b"V\\ud800\n", b"S'a'\n", b"p0\n",
    b"C\x03abc", b"\x8c\x02\xff\xfe", b"\x8e" + b"\xff" * 8, b"B\x01\0\0\0x", b"Q", b"P0\n", b"(i__main__\nA\n",
    b"(lp0\n", b"(dp0\n",
]  # fmt: skip


def _opcode(rng: Random, pieces: list[bytes], at: int) -> None:
    kind = rng.randrange(5)
    if kind == 0 and len(pieces) > 2:
        del pieces[at]
    elif kind == 1:
        pieces.insert(at, rng.choice(pieces))
    elif kind == 2:
        pieces[at] = rng.choice(OPCODES)
    elif kind == 3:
        pieces[at:at] = [rng.choice(OPCODES)] * rng.choice([1, 1, 2, 50])
    else:
        pieces[at] = raw(rng, pieces[at])


def varint(value: int) -> bytes:
    """A whole number as protobuf writes it."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def fields(data: bytes) -> list[tuple[int, int, Any]] | None:
    """(number, wire type, value) of a message; None if it is none."""
    out: list[tuple[int, int, Any]] = []
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            kind = tag & 7
            if kind == 0:
                value, at = _varint(data, at)
            elif kind == 2:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                value, at = data[at : at + size], at + size
            else:
                return None
            out.append((tag >> 3, kind, value))
    except IndexError:
        return None
    return out if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def encoded(parts: list[tuple[int, int, Any]]) -> bytes:
    """The message of these fields."""
    out = []
    for number, kind, value in parts:
        out.append(varint(number << 3 | kind))
        out.append(varint(value) if kind == 0 else (varint(len(value)) if kind == 2 else b"") + value)
    return b"".join(out)


def message(rng: Random, data: bytes, depth: int = 0) -> bytes:
    """A message of protobuf with fields changed, doubled, dropped, or of another type."""
    parts = fields(data)
    if not parts or depth > 3:
        return raw(rng, data)
    at = rng.randrange(len(parts))
    number, kind, value = parts[at]
    choice = rng.randrange(8)
    if choice == 0:
        del parts[at]
    elif choice == 1:
        parts.insert(rng.randrange(len(parts) + 1), parts[at])
    elif choice == 2:
        parts[at] = (rng.choice([0, 1, number + 1, number - 1, 2**28]), kind, value)
    elif choice == 3:
        parts[at] = (
            number,
            *rng.choice([(0, 2**63), (2, b""), (1, struct.pack("<d", float("nan"))), (5, b"\xff" * 4), (2, b"\xff" * 12)]),
        )
    elif kind == 0:
        parts[at] = (number, kind, rng.choice([*INTEGERS, value + 1, value - 1]))
    elif kind == 2:
        parts[at] = (number, kind, message(rng, value, depth + 1) if rng.random() < 0.7 else rng.choice(TOKENS))
    else:
        parts[at] = (number, kind, rng.randbytes(len(value)))
    return encoded(parts)


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = _varint(data, at)
        yield data[at : at + size]
        at += size


def delimited(rng: Random, data: bytes) -> bytes:
    """Messages of protobuf, each behind its length, as Chakra writes them."""
    try:
        found = list(_messages(data))
    except IndexError:
        return raw(rng, data)
    for _ in range(times(rng)):
        at = rng.randrange(len(found))
        kind = rng.randrange(6)
        if kind == 0 and len(found) > 1:
            del found[at]
        elif kind == 1:
            found.insert(rng.randrange(len(found) + 1), found[at])
        else:
            found[at] = message(rng, found[at])
    return b"".join(varint(len(one)) + one for one in found)


def nested_messages(rng: Random, data: bytes) -> bytes:
    """One message of protobuf that holds others, as XLA's profiler writes it."""
    for _ in range(times(rng)):
        data = message(rng, data, -3)
    return data
