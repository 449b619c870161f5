"""Answers of the web app's API, made up from their types: every text is one given text, every list has two entries."""

from __future__ import annotations

import re
from typing import cast

import msgspec
from msgspec import inspect

from taut.result import view_types
from taut.result.types import Part

TEXTS = {"amount": "12.5", "link": "1:0"}


def answer(name: str, text: str) -> Part:
    """The answer at an address of the API in which all names are ``text``."""
    kind = view_types.ANSWERS[name]
    made = msgspec.convert(_made(inspect.type_info(kind), text), kind)
    if isinstance(made, view_types.RunList):
        return msgspec.structs.replace(made, runs=_cards(made, text))
    if isinstance(made, view_types.Questions):
        scales = {"work": [0.5, 2.0], "bandwidth": [0.5, 2.0], "gaps": [0.0, 2.0]}
        return msgspec.structs.replace(made, choices={"rank": made.choices[text]}, scales=scales)
    return made


def _cards(made: view_types.RunList, text: str) -> list[view_types.RunCard]:
    """The runs ``0`` and ``1``: the first has all pages, the second none."""
    views: list[list[str]] = [list(view_types.VIEWS), ["overview"]]
    return [msgspec.structs.replace(card, id=str(i), name=text, views=views[i]) for i, card in enumerate(made.runs)]


def _made(kind: inspect.Type, text: str, depth: int = 0) -> object:
    """A value of a type; numbers are 1 or a half, so that each can be a place in any list."""
    match kind:
        case inspect.StructType(fields=fields):
            return {field.encode_name: _field(field, text, depth) for field in fields}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.CollectionType(item_type=item):
            return [_made(item, text, depth + 1) for _ in range(2)]
        case inspect.TupleType(item_types=items):
            return [_made(item, text, depth + 1) for item in items]
        case inspect.DictType(key_type=key, value_type=value):
            return {cast(str, _made(key, text, depth + 1)): _made(value, text, depth + 1)}
        case inspect.UnionType(types=types):
            return _made(_first(types), text, depth)
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.StrType(pattern=pattern):
            return text if pattern is None else next(one for one in TEXTS.values() if re.match(pattern, one))
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 0.5
        case inspect.BoolType():
            return True
        case inspect.BytesType():
            return "AAAA"
    return None


def _first(types: tuple[inspect.Type, ...]) -> inspect.Type:
    """What a value is where it is known."""
    return next(one for one in types if not isinstance(one, inspect.NoneType))


def _field(field: inspect.Field, text: str, depth: int) -> object:
    """The value of a field; what refers to its own type ends here."""
    deep = depth > 7 and not field.required
    return field.default if deep and field.default is not inspect.NODEFAULT else _made(field.type, text, depth + 1)
