"""Object code made ready when it is kept, so that the next run places it in memory without LLVM.

Kernels are compiled for the large code model: what they refer to, they refer to by an address of 64 bits. So all that is left
to do with their code is to add an address to some of its words. LLVM would do the same; but to load LLVM takes as long as to
read a small trace, and a third of the memory of its analysis. Object code of any other kind is left to LLVM.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections import defaultdict
from collections.abc import Callable

import numpy as np
from msgspec import Struct

ELF_X86_64, MACHINE = b"\x7fELF\x02\x01", 62
PROGRAM, SYMBOLS, ADDENDS = 1, 2, 4
"""Kinds of sections: code and constants, symbols, places to which addresses are added."""
WRITABLE, LOADED = 1, 2
"""Flags of sections."""
WHOLE_ADDRESS = 1
"""The one kind of relocation that is done here, R_X86_64_64."""
UNDEFINED, COMMON = 0, 0xFFF2
"""Sections of symbols that lie elsewhere, and of zeros: environments, which numba fills only in a process that compiles."""
HERE = ""
"""Stands for the beginning of the code itself among the names of what is referred to."""
SECTION = np.dtype(
    [
        ("name", "<u4"),
        ("type", "<u4"),
        ("flags", "<u8"),
        ("address", "<u8"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("link", "<u4"),
        ("info", "<u4"),
        ("align", "<u8"),
        ("each", "<u8"),
    ]
)
SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")])
ADDEND = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
WORD = struct.Struct("<Q")
PROCESS = ctypes.CDLL(None)
_ROOMS: list[mmap.mmap] = []
"""Memory that code lies in."""


class Links(Struct):
    """Where code is called, and which of its words refer to what: they hold how far behind the address of its name it lies."""

    entry: int
    places: dict[str, list[int]]


def placed(code: bytes, symbol: str) -> tuple[Links, bytes] | None:
    """The sections of object code one behind the other; None if it is not of the one kind that is understood here."""
    if not code.startswith(ELF_X86_64) or int.from_bytes(code[18:20], "little") != MACHINE:
        return None
    sections = np.frombuffer(code, SECTION, int.from_bytes(code[60:62], "little"), int.from_bytes(code[40:48], "little"))
    image, where = bytearray(), {}
    for number, section in enumerate(sections):
        if section["flags"] & LOADED and section["type"] == PROGRAM:
            if section["flags"] & WRITABLE:
                return None
            image += bytes(-len(image) % max(int(section["align"]), 1))
            where[number] = len(image)
            image += _of(code, section)
    table = next(section for section in sections if section["type"] == SYMBOLS)
    symbols, names = np.frombuffer(_of(code, table), SYMBOL), _of(code, sections[table["link"]])
    zeros = len(image) + -len(image) % 64
    image += bytes(zeros - len(image) + int(symbols["size"][symbols["section"] == COMMON].max(initial=0)))
    links: dict[str, list[int]] = defaultdict(list)
    for section in sections[(sections["type"] == ADDENDS) & np.isin(sections["info"], list(where))]:
        for one in np.frombuffer(_of(code, section), ADDEND):
            target = symbols[one["symbol"]]
            home, name = int(target["section"]), _name(names, target)
            if one["type"] != WHOLE_ADDRESS or home not in (UNDEFINED, COMMON, *where):
                return None
            behind = zeros if home == COMMON else 0 if home == UNDEFINED else where[home] + int(target["value"])
            at = where[int(section["info"])] + int(one["offset"])
            WORD.pack_into(image, at, behind + int(one["addend"]) & (1 << 64) - 1)
            links[name if home == UNDEFINED else HERE].append(at)
    found = next(one for one in symbols if int(one["section"]) in where and _name(names, one) == symbol)
    return Links(where[int(found["section"])] + int(found["value"]), dict(links)), bytes(image)


def _of(code: bytes, section: np.void) -> bytes:
    return code[int(section["offset"]) : int(section["offset"]) + int(section["size"])]


def _name(names: bytes, symbol: np.void) -> str:
    return names[symbol["name"] : names.index(b"\0", symbol["name"])].decode()


def loaded(links: Links, code: bytes, address_of: Callable[[str], int]) -> int:
    """The address at which the code is called, which stays for the life of the process."""
    image = bytearray(code)
    room = mmap.mmap(-1, len(image), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = ctypes.addressof(ctypes.c_char.from_buffer(room))
    for name, places in links.places.items():
        base = start if name == HERE else address_of(name)
        for at in places:
            WORD.pack_into(image, at, base + WORD.unpack_from(image, at)[0] & (1 << 64) - 1)
    room[:] = image
    # Never writable and executable at once.
    if PROCESS.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(len(image)), mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError("code cannot be made executable here")
    _ROOMS.append(room)
    return start + links.entry


def address_in_process(name: str) -> int:
    """The address of what this process knows by a name: functions and data of Python and of the C library."""
    return ctypes.addressof(ctypes.c_char.in_dll(PROCESS, name))
