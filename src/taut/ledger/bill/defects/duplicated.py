"""Charges that stand in the bill twice: the same in every column, in one file or in a file that was delivered again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.ids import least, numbered
from taut.ledger.bill.charge_items import CODE, EACH
from taut.ledger.bill.charge_rows import NO_TIME, ChargeRows
from taut.ledger.bill.defects.found import Found, whole
from taut.read.focus.focus_columns import KINDS

KIND = "duplicated line"
APART = ("row", "file")
OF_INVOICE = ("InvoiceId", "InvoiceDetailId", "InvoiceIssuerName", "x_InvoiceId")
"""What a charge has of the invoice that it stands in."""
# Of at least so many different charges of one kind, half that stand several times are how this provider writes them.
USUAL_OF = 3
_STIR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def find(rows: ChargeRows) -> list[Found]:
    """Charges that repeat others, by the file that they are in."""
    repeats = np.flatnonzero(repeated(rows))
    back = _corrected(rows, repeats)
    if back.any():  # both stand beside what was used, and come to nothing
        rows.item[repeats[back]] = CODE["correction"]
        rows.notes.append(f"{int(back.sum()):,} charges stand in the bill twice, and corrections take them back again")
    repeats = repeats[~back]
    return [*_by_file(rows, repeats), *_in_invoices(rows)]


def _by_file(rows: ChargeRows, repeats: Ints) -> list[Found]:
    files, file = rows.v.words("file")
    found = []
    for one in np.unique(file[repeats]).tolist():
        some = repeats[file[repeats] == one]
        found.append(whole(KIND, rows, some, f"{len(some):,} charges of {files[one]} are the same as others in every column"))
    return found


def _in_invoices(rows: ChargeRows) -> list[Found]:
    """Charges of no accelerator that stand in a second invoice, the same in all that is not of the invoice.

    Those of hosts are left to what their time holds (``overlapping periods``).
    """
    names, invoice = rows.invoice()
    asked = rows.kept & (invoice < len(names) - 1) & (rows.spans.start != NO_TIME) & ~rows.v.correction()
    asked &= ~rows.is_item("accelerator time", "unmatched") & ((rows.effective != 0) | (rows.billed != 0))
    some = np.flatnonzero(asked)
    if len(names) < 3 or not len(some):
        return []
    content, count = numbered(fingerprints(rows, (*APART, *OF_INVOICE))[some])
    first = least(content, count, some)
    again = some[invoice[some] != invoice[first[content]]]
    said = f"{len(again):,} charges stand in another invoice already, the same in every other column"
    return [whole(KIND, rows, again, said)] if len(again) else []


def _corrected(rows: ChargeRows, repeats: Ints) -> Mask:
    """Copies that the provider took back: a correction of the same resource and time, of as much below 0, for each."""
    taken = np.flatnonzero(rows.v.correction() & rows.kept & (rows.effective < 0))
    if not len(taken) or not len(repeats):
        return np.zeros(len(repeats), dtype=np.bool_)
    # A correction that was itself delivered again corrects the charge, and its copy the copy.
    content = fingerprints(rows)
    taken = taken[~np.isin(content[taken], content[repeats])]
    both = np.concatenate([taken, repeats])
    resource = rows.v.words("ResourceId")[1][both]
    money = np.abs(rows.effective[both])
    group, count = numbered(resource, rows.spans.start[both], rows.spans.end[both], money)
    left = np.bincount(group[: len(taken)], minlength=count)
    mine = group[len(taken) :]
    order = np.argsort(mine, kind="stable")
    place = np.empty(len(mine), dtype=np.int64)
    place[order] = np.arange(len(mine)) - np.searchsorted(mine[order], mine[order])
    found: Mask = place < left[mine]
    return found


def repeated(rows: ChargeRows) -> Mask:
    """Which charges repeat an earlier one; those that cost nothing are let be.

    Over files a charge is expected as often as the file has it that has it most. Within a file it is expected once, except for
    charges without a resource and for those of single accelerators where most of their kind stand there several times.
    """
    out = np.zeros(len(rows), dtype=np.bool_)
    paid = np.flatnonzero(rows.kept & ((rows.effective != 0) | (rows.billed != 0)))
    content, count = numbered(fingerprints(rows)[paid].view(np.int64))
    if count == len(paid):
        return out
    file = rows.v.words("file")[1][paid]
    here, places = numbered(content, file)
    times = np.bincount(here, minlength=places)
    ordinary = _ordinary(rows, paid, content, times[here])
    most = np.ones(count, dtype=np.int64)
    np.maximum.at(most, content[ordinary], times[here][ordinary])
    order = np.argsort(content, kind="stable")
    first = np.searchsorted(content[order], np.arange(count))
    place = np.empty(len(paid), dtype=np.int64)
    place[order] = np.arange(len(paid)) - first[content[order]]
    out[paid[place >= most[content]]] = True
    return out


def _ordinary(rows: ChargeRows, paid: Ints, content: Ints, times: Ints) -> Mask:
    """Charges of a kind that is usually written as several equal rows."""
    may = rows.v.null("ResourceId")[paid] | (rows.each[paid] == EACH)
    kinds = [
        rows.v.words(name)[1][paid] for name in ("SkuPriceId", "SkuId", "ServiceName", "ChargeCategory", "ChargeDescription")
    ]
    kind, count = numbered(*kinds)
    one = np.unique(content, return_index=True)[1]
    of_kind = np.bincount(kind[one], minlength=count)
    several = np.bincount(kind[one], times[one] > 1, minlength=count)
    found: Mask = may & ((of_kind >= USUAL_OF) & (several * 2 >= of_kind))[kind]
    return found


def fingerprints(rows: ChargeRows, apart: Sequence[str] = APART) -> Ints:
    """A number per charge that is the same for charges that are the same in every column but some: their place.

    64 bits: two different ones of a million agree by chance once in 30 million bills.
    """
    print_ = np.zeros(len(rows), dtype=np.uint64)
    for name in rows.table.column_names:
        if name in apart or rows.table[name].null_count == len(rows):
            continue
        for words in _words(rows, name):
            print_ = (print_ ^ words.view(np.uint64)) * _STIR
            print_ ^= print_ >> np.uint64(29)
            print_ *= _MIX
    return print_.view(np.int64)


def _words(rows: ChargeRows, name: str) -> list[Ints]:
    """A column as numbers of 64 bits."""
    kind = KINDS.get(name)
    if kind == "time":
        return [rows.v.time(name)]
    if kind != "number":
        return [rows.v.words(name)[1].astype(np.int64)]
    column = rows.table[name].combine_chunks()
    both = np.frombuffer(column.buffers()[1], dtype=np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    absent = column.is_null().to_numpy(zero_copy_only=False)
    return [np.where(absent, 0, both[:, 0]), np.where(absent, 1 << 62, both[:, 1])]
