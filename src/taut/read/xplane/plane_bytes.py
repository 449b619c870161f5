"""Bytes of an XSpace → arrays: events of lines, and the statistics that are asked for, in compiled code.

Nothing is trusted: a length beyond its message, a number of more than ten bytes, a group or field 0 ends the reading with
the byte at which it stands, and events are counted before memory is taken for them.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.jit import kernel
from taut.read.chakra.wire import Octets, varint

# What a statistic holds instead of the length of a text.
ABSENT, NUMBER, REFERENCE, FRACTION = -1, -2, -3, -4


@kernel()
def after_field(data: Octets, at: int, end: int, wire: int) -> int:
    """The byte after the value of a field that is not wanted; -1 where there is none."""
    if wire == 0:
        _, at = varint(data, at, end)
        return at
    size = 8
    if wire == 2:
        size, at = varint(data, at, end)
        if at < 0 or size < 0:
            return -1
    elif wire == 5:
        size = 4
    elif wire != 1:
        return -1
    return at + size if size <= end - at else -1


# Columns of what is known of a line: events, begin and length of its name and of the name to show, timestamp.
COUNT, NAME, NAME_LENGTH, SHOWN, SHOWN_LENGTH, TIMESTAMP = range(6)


@kernel(lists=True)
def line_heads(data: Octets, begin: Ints, finish: Ints) -> tuple[Ints, int]:
    """(one row a line, bad byte or -1): how many events it has, where its names stand, its timestamp."""
    heads = np.zeros((len(begin), 6), np.int64)
    for line in range(len(begin)):
        at, end = begin[line], finish[line]
        while at < end:
            here = at
            tag, at = varint(data, at, end)
            if at < 0 or tag < 8 or tag > 4294967295:
                return heads, here
            if tag == 24:
                heads[line, 5], at = varint(data, at, end)
            elif tag == 18 or tag == 90:  # fields 2 and 11
                size, at = varint(data, at, end)
                if at < 0 or size < 0 or size > end - at:
                    return heads, here
                column = 1 if tag == 18 else 3
                heads[line, column] = at
                heads[line, column + 1] = size
                at += size
            else:
                at = after_field(data, at, end, tag & 7)
                if tag == 34:  # field 4, a message
                    heads[line, 0] += 1
            if at < 0:
                return heads, here
    return heads, -1


@kernel(lists=True)
def events(data: Octets, begin: Ints, finish: Ints, count: int) -> tuple[Ints, Ints, Ints, Ints, Ints, int]:
    """(metadata, offset_ps, duration_ps, first byte of the statistics, end, bad byte or -1) of the events of lines.

    An event that stands for many (it has a number of occurrences and no time) has a duration of -1.
    """
    metadata, offset, duration = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)
    stats, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    row = 0
    for line in range(len(begin)):
        at, end = begin[line], finish[line]
        while at < end:
            here = at
            tag, at = varint(data, at, end)
            if at < 0:
                return metadata, offset, duration, stats, ends, here
            if tag != 34:
                at = after_field(data, at, end, tag & 7)
                if at < 0:
                    return metadata, offset, duration, stats, ends, here
                continue
            size, at = varint(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return metadata, offset, duration, stats, ends, here
            last = at + size
            first, many = last, False
            while at < last:
                here = at
                tag, at = varint(data, at, last)
                if at < 0 or tag < 8 or tag > 4294967295:
                    return metadata, offset, duration, stats, ends, here
                if tag == 8:
                    metadata[row], at = varint(data, at, last)
                elif tag == 16:
                    offset[row], at = varint(data, at, last)
                elif tag == 24:
                    duration[row], at = varint(data, at, last)
                else:
                    if tag == 34 and first == last:
                        first = here
                    many = many or tag == 40
                    at = after_field(data, at, last, tag & 7)
                if at < 0:
                    return metadata, offset, duration, stats, ends, here
            if many:
                duration[row] = -1
            stats[row] = first
            ends[row] = last
            row += 1
    return metadata, offset, duration, stats, ends, -1


@kernel(lists=True)
def statistics(data: Octets, begin: Ints, finish: Ints, field: int, column: Ints, columns: int) -> tuple[Ints, Ints, int]:
    """(values, what they are, bad byte or -1) of some statistics of messages, one row each and one column a statistic.

    The statistics are the messages of ``field``; ``column`` says in which column the one of each number goes, -1 for none.
    What a value is: a number, a reference, a fraction (its 64 bits), absent, or a text that begins there, of this length.
    """
    values, kinds = np.zeros((len(begin), columns), np.int64), np.full((len(begin), columns), -1, np.int64)
    wanted = field * 8 + 2
    for row in range(len(begin)):
        at, end = begin[row], finish[row]
        while at < end:
            here = at
            tag, at = varint(data, at, end)
            if at < 0 or tag < 8 or tag > 4294967295:
                return values, kinds, here
            if tag != wanted:
                at = after_field(data, at, end, tag & 7)
                if at < 0:
                    return values, kinds, here
                continue
            size, at = varint(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return values, kinds, here
            last = at + size
            key, value, kind = 0, 0, -1
            while at < last:
                here = at
                tag, at = varint(data, at, last)
                if at < 0 or tag < 8 or tag > 4294967295:
                    return values, kinds, here
                if tag == 8:
                    key, at = varint(data, at, last)
                elif tag == 24 or tag == 32 or tag == 56:  # unsigned, signed, reference
                    value, at = varint(data, at, last)
                    kind = -3 if tag == 56 else -2
                elif tag == 42 or tag == 50:  # text, bytes
                    size, at = varint(data, at, last)
                    if at < 0 or size < 0 or size > last - at:
                        return values, kinds, here
                    value, kind = at, size
                    at += size
                elif tag == 17 and last - at >= 8:  # fraction
                    value = data[at + 7]
                    for place in range(6, -1, -1):
                        value = value * 256 + (data[at + place] & 255)
                    kind = -4
                    at += 8
                else:
                    at = after_field(data, at, last, tag & 7)
                if at < 0:
                    return values, kinds, here
            if 0 <= key < len(column) and column[key] >= 0:
                values[row, column[key]] = value
                kinds[row, column[key]] = kind
    return values, kinds, -1
