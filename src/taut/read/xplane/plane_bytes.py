"""Bytes of an XSpace → arrays: events of lines, and the statistics that are asked for, in compiled code.

Nothing is trusted: a length beyond its message, a number of more than ten bytes, a group or field 0 ends the reading with
the byte at which it stands, and events are counted before memory is taken for them.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints
from taut.core.jit import kernel
from taut.read.chakra.protobuf_bytes import Octets, next_field

# What a statistic holds instead of the length of a text.
ABSENT, NUMBER, REFERENCE, FRACTION = -1, -2, -3, -4


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
            tag, value, size, at = next_field(data, at, end)
            if at < 0:
                return heads, here
            if tag == 24:
                heads[line, 5] = value
            elif tag == 18 or tag == 90:  # fields 2 and 11
                column = 1 if tag == 18 else 3
                heads[line, column] = value
                heads[line, column + 1] = size
            elif tag == 34:  # field 4, a message
                heads[line, 0] += 1
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
            tag, inside, size, at = next_field(data, at, end)
            if at < 0:
                return metadata, offset, duration, stats, ends, here
            if tag != 34:
                continue
            last = inside + size
            first, many = last, False
            while inside < last:
                here = inside
                tag, value, _, inside = next_field(data, inside, last)
                if inside < 0:
                    return metadata, offset, duration, stats, ends, here
                if tag == 8:
                    metadata[row] = value
                elif tag == 16:
                    offset[row] = value
                elif tag == 24:
                    duration[row] = value
                elif tag == 34 and first == last:
                    first = here
                many = many or tag == 40
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
            tag, inside, size, at = next_field(data, at, end)
            if at < 0:
                return values, kinds, here
            if tag != wanted:
                continue
            last = inside + size
            key, value, kind = 0, 0, -1
            while inside < last:
                here = inside
                tag, found, size, inside = next_field(data, inside, last)
                if inside < 0:
                    return values, kinds, here
                if tag == 8:
                    key = found
                elif tag == 24 or tag == 32:  # unsigned, signed
                    value, kind = found, -2
                elif tag == 56:  # reference
                    value, kind = found, -3
                elif tag == 42 or tag == 50:  # text, bytes
                    value, kind = found, size
                elif tag == 17:  # fraction
                    value, kind = found, -4
            if 0 <= key < len(column) and column[key] >= 0:
                values[row, column[key]] = value
                kinds[row, column[key]] = kind
    return values, kinds, -1
