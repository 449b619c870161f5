"""Write the pages that are made from the code: cli.md, columns.md, api.md, result.md, scenario-keys.md; and the JSON Schema.

Run `python docs/generate.py` after changing a command, a column, a public name or a key of a scenario; the tests compare.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
import msgspec
from click.testing import CliRunner
from msgspec import UNSET
from msgspec import inspect as kinds

import taut
from taut.core.tables import columns_of
from taut.result import types
from taut.result.schema import schema

DOCS = Path(__file__).resolve().parent
MADE = "<!-- made by docs/generate.py; do not edit -->"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of a command and of everything below it, in the order the help shows."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=" ".join(("taut", *path)))
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from commands(child, (*path, name))


def cli_page() -> str:
    """Every command's `--help`, as printed on a terminal of 88 columns."""
    from taut.cli import main

    runner = CliRunner(env={"NO_COLOR": "1", "COLUMNS": "88", "TERMINAL_WIDTH": "88"})
    parts = [MADE, "# The command line", "What `--help` prints, for every command."]
    for path in commands(main):
        result = runner.invoke(main, [*path, "--help"], prog_name="taut", terminal_width=88, max_content_width=88)
        if result.exit_code != 0:
            raise RuntimeError(f"taut {' '.join(path)} --help failed: {result.output}")
        parts += [f"## {' '.join(('taut', *path))}", f"```text\n{result.stdout.rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def modules() -> Iterator[Any]:
    """Every module of the package that can be imported without an extra."""
    yield taut
    for info in pkgutil.walk_packages(taut.__path__, "taut."):
        if info.name.rpartition(".")[2] == "__main__":
            continue
        try:
            yield importlib.import_module(info.name)
        except ModuleNotFoundError as missing:
            if (missing.name or "taut").partition(".")[0] == "taut":
                raise


def rows() -> list[type]:
    """Every row type: a class whose attributes are columns."""
    found = {
        thing
        for module in modules()
        for thing in vars(module).values()
        if inspect.isclass(thing) and thing.__module__ == module.__name__ and list(columns_of(thing))
    }
    return sorted(found, key=lambda row: (row.__module__, inspect.getsourcelines(row)[1]))


def first_line(thing: object) -> str:
    """The first line of a docstring, safe inside a table."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", "\\|").replace("``", "`")


def columns_page() -> str:
    """Every column of every table, with its type and meaning."""
    parts = [
        MADE,
        "# Columns",
        "Every table of a run. Times are whole nanoseconds; an integer that was not measured is -1, a name that is not known "
        "is empty. In the Parquet files of a run folder every code is the word it stands for (dictionary-encoded): `kind`, "
        "`name`, `lane`, `verb` and `group` of `ops.parquet` and `gates.parquet`, `fate` and `name` of `ledger.parquet`. "
        "`findings.parquet`, `causes.parquet` and `steps.parquet` hold `findings`, `blame` and `windows` of "
        "[the result](result.md), `steps.parquet` also `ideal_ns`, what the step takes with no op above its reference "
        "([the ideal](serve.md)), `ranks.parquet` who each rank is, the wait it caused, and its time by fate.",
    ]
    for row in rows():
        lines = ["| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {dtype} | {doc.replace('|', chr(92) + '|')} |" for name, dtype, doc in columns_of(row)]
        parts += [f"## {row.__name__}", first_line(row), "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def api_page() -> str:
    """The public names, with their first line and their signatures: the surface that the tests pin."""
    lines = ["| name | what it is |", "|---|---|"]
    lines += [f"| `taut.{name}` | {first_line(getattr(taut, name))} |" for name in sorted(taut.__all__)]
    verbs = [name for name in sorted(taut.__all__) if inspect.isfunction(getattr(taut, name))]
    parts = [MADE, "# The Python interface", "\n".join(lines), "## Signatures"]
    for name in verbs:
        parts += [f"```python\n{signature(name)}\n```", inspect.getdoc(getattr(taut, name)) or ""]
    return "\n\n".join(parts) + "\n"


def signature(name: str) -> str:
    """How a verb is called, one parameter a line where they do not fit into one."""
    found = inspect.signature(getattr(taut, name))
    plain = found.replace(
        parameters=[one.replace(annotation=_Written(one.annotation), default=one.default) for one in found.parameters.values()],
        return_annotation=_Written(found.return_annotation),
    )
    whole = f"def {name}{plain}: ..."
    if len(whole) <= 100:
        return whole
    inside = [str(one) for one in plain.parameters.values()]
    first = next((i for i, one in enumerate(plain.parameters.values()) if one.kind is one.KEYWORD_ONLY), None)
    if first is not None:
        inside.insert(first, "*")
    return f"def {name}(\n" + "".join(f"    {one},\n" for one in inside) + f") -> {found.return_annotation}: ..."


class _Written(str):
    """An annotation as it stands in the source, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def result_page() -> str:
    """Every object and key that `--json` prints, with its type and meaning."""
    definitions = schema()["$defs"]
    first = ["| verb | what it prints |", "|---|---|"]
    first += [f"| `taut {verb} --json` | [{one.__name__}](#{one.__name__.lower()}) |" for verb, one in types.RESULTS.items()]
    parts = [
        MADE,
        "# What --json prints",
        "Made from `src/taut/result/types.py`; the conventions are in [contract.md](contract.md). `taut export --to schema` "
        "writes the same as JSON Schema. A key marked *optional* is absent where it does not apply.",
        "\n".join(first),
    ]
    for name, one in definitions.items():
        lines = ["| key | type | meaning |", "|---|---|---|"]
        struct = getattr(types, name)
        absent = {
            key
            for key, default in zip(
                reversed(struct.__struct_encode_fields__), reversed(struct.__struct_defaults__), strict=False
            )
            if default is UNSET
        }
        for key, about in one["properties"].items():
            kind = written(about) + (", optional" if key in absent else "")
            lines.append(f"| `{key}` | {kind} | {about.get('description', '').replace('|', chr(92) + '|')} |")
        parts += [f"## {name}", one.get("description", ""), "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def written(about: dict[str, Any]) -> str:
    """A type of the schema in a few words."""
    if "$ref" in about:
        name = about["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in about:
        return " or ".join(dict.fromkeys(written(one) for one in about["anyOf"]))
    if "enum" in about:
        return " or ".join("null" if one is None else f"`{one}`" for one in about["enum"])
    if about.get("type") == "array":
        items = about.get("items") or next(iter(about.get("prefixItems", [])), {})
        return f"list of {written(items)}" if items else "list"
    if about.get("type") == "object":
        return f"key → {written(about.get('additionalProperties') or {})}"
    return str(about.get("type", "any"))


def scenarios() -> dict[str, type[msgspec.Struct]]:
    """Kinds of scenarios, each by what its file describes."""
    from taut.project.loops.scenario import Scenario as Loops
    from taut.project.requests.agents.scenario import AgentScenario
    from taut.project.requests.serving.scenario import ServingScenario
    from taut.project.training.scenario import Scenario

    return {"Training jobs": Scenario, "Serving": ServingScenario, "Agents": AgentScenario, "Control loops": Loops}


# How a key ends, and the unit that says.
UNITS = {
    r"_per_1000_(\w+)_days": r"failures in 1000 \1-days", r"kg_co2e_per_kwh": "kg/kWh", r"kwh": "money a kWh",
    r"growth_per_hour": "share an hour", r"per_hour": "money an hour", r"price|penalty|value_per_unit": "money",
    r"gb_per_s": "GB/s", r"_tflops": "TFLOP/s", r"_gb": "GB", r"_?per_s": "a second", r"_us": "µs", r"_ms": "ms", r"_s": "s",
    r"_hours": "hours", r"_years": "years", r"_?steps": "steps", r"_w": "W", r"_bytes": "bytes", r"_share": "share",
    r"pj_per_bit": "pJ/bit", r"_?tokens": "tokens", r"_(factor|times)": "times",
}  # fmt: skip


def unit(key: str) -> str:
    """The unit that a key carries in its name; empty for plain numbers."""
    for ending, name in UNITS.items():
        if found := re.search(f"(?:{ending})$", key):
            return found.expand(name)
    return ""


def taken(kind: kinds.Type, order: Sequence[object]) -> str:
    """What a key takes, in a few words; words to choose from in the order of the source."""
    match kind:
        case kinds.UnionType(types=some):
            return " or ".join(taken(one, order) for one in some if not isinstance(one, kinds.NoneType))
        case kinds.LiteralType(values=values):
            return ", ".join(f"`{one}`" for one in sorted(values, key=order.index))
        case kinds.VarTupleType(item_type=item):
            return f"list: {taken(item, order)}"
        case kinds.BoolType():
            return "`true`, `false`"
        case kinds.StrType():
            return "text"
        case kinds.IntType() | kinds.FloatType():
            return limits(kind)
        case kinds.DictType():
            return "table"
    return "list" if isinstance(kind, kinds.TupleType) else "any"


# Limits from here on only keep sums finite.
FINITE = 1e6


def limits(kind: kinds.IntType | kinds.FloatType) -> str:
    """A number and what it must lie between; limits that only keep sums finite are left out."""
    word = "whole" if isinstance(kind, kinds.IntType) else "number"
    low = f"≥ {kind.ge:g}" if kind.ge is not None else f"> {kind.gt:g}" if kind.gt is not None else ""
    top = f"≤ {kind.le:g}" if kind.le is not None and kind.le < FINITE else f"< {kind.lt:g}" if kind.lt is not None else ""
    return f"{word} {', '.join(filter(None, (low, top)))}".strip()


def key_meanings(struct: type) -> dict[str, str]:
    """Key → the docstring below it, of a struct and those it builds on."""
    out: dict[str, str] = {}
    for one in reversed([base for base in struct.__mro__ if issubclass(base, msgspec.Struct) and base is not msgspec.Struct]):
        (found,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        body = getattr(found, "body", [])
        for field, after in pairwise(body):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    out[name] = " ".join(text.split()).replace("``", "`")
    return out


def words_of(kind: object) -> list[object]:
    """The words that a key chooses from, in the order of the source."""
    inside = [word for one in get_args(kind) for word in words_of(one)]
    return list(get_args(kind)) if get_origin(kind) is Literal else inside


def fields_of(struct: type[msgspec.Struct]) -> tuple[kinds.Field, ...]:
    """The fields of a struct with what they hold."""
    info = kinds.type_info(struct)
    assert isinstance(info, kinds.StructType)
    return info.fields


def tables_of(struct: type[msgspec.Struct], path: str = "") -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The tables of a scenario, each with its heading."""
    for field in fields_of(struct):
        some = field.type.types if isinstance(field.type, kinds.UnionType) else (field.type,)
        for one in some:
            many = isinstance(one, kinds.VarTupleType)
            inner = one.item_type if isinstance(one, kinds.VarTupleType) else one
            if isinstance(inner, kinds.StructType):
                yield (f"[[{path}{field.name}]]" if many else f"[{path}{field.name}]"), inner.cls
                yield from tables_of(inner.cls, f"{path}{field.name}.")


def keys_of(struct: type[msgspec.Struct]) -> list[tuple[str, str, str, str, str, str]]:
    """(key, unit, what it takes, default, meaning, where the default is from) of every key of a table that is no table."""
    meanings, rows = key_meanings(struct), []
    words = {field.name: words_of(field.type) for field in msgspec.structs.fields(struct)}
    for field in fields_of(struct):
        some = field.type.types if isinstance(field.type, kinds.UnionType) else (field.type,)
        inside = [one.item_type if isinstance(one, kinds.VarTupleType) else one for one in some]
        meaning = meanings.get(field.name, "")
        if meaning.startswith("No key of a file") or any(isinstance(one, kinds.StructType) for one in inside):
            continue
        about, _, source = meaning.partition(" Default: ")
        made = field.default_factory() if callable(field.default_factory) else field.default
        given = "required" if field.required else default_of(made)
        rows.append((field.name, unit(field.name), taken(field.type, words[field.name]), given, about, source.rstrip(".")))
    return rows


def default_of(value: object) -> str:
    """A default as TOML has it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, float) and value == int(value):
        return f"`{int(value)}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def not_given(root: type[msgspec.Struct], heading: str) -> str:
    """What stands in for a table that is not given, where that is not the default of each of its keys."""
    default = next((field.default for field in msgspec.structs.fields(root) if heading == f"[{field.name}]"), None)
    if not isinstance(default, msgspec.Struct) or default == type(default)():
        return ""
    keys = ", ".join(f"{name} = {value}" for name, value in msgspec.structs.asdict(default).items())
    return f"Where the table is not given: `{keys}`."


def keys_page() -> str:
    """Every key of every kind of scenario, with its unit, default and meaning."""
    parts = [
        MADE,
        "# Keys of a scenario",
        "A scenario is one TOML file ([project.md](project.md)). A key that is not listed is refused; one that is not given "
        "takes its default, and `defaults` in the JSON names it. `device` and `fabric` may also be the name of one that ships, "
        "or a table with `base = NAME` that changes some of its keys.",
    ]
    shown: dict[type, str] = {}
    for title, root in scenarios().items():
        parts += [f"## {title}", first_line(root) if root.__doc__ != "One file." else ""]
        for heading, struct in (("Top of the file", root), *tables_of(root)):
            given = not_given(root, heading)
            if struct in shown and struct is not root:
                parts += [f"### {heading}", f"As [above](#{shown[struct]}).", given]
                continue
            rows = keys_of(struct)
            anchor = re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
            shown.setdefault(struct, anchor)
            lines = ["| key | unit | takes | default | meaning | where the default is from |", "|---|---|---|---|---|---|"]
            lines += [
                "| " + " | ".join(cell.replace("|", chr(92) + "|") for cell in (f"`{key}`", *rest)) + " |"
                for key, *rest in rows
            ]
            parts += [f"### {heading}", "" if struct is root else first_line(struct), "\n".join(lines), given]
    return "\n\n".join(filter(None, parts)) + "\n"


def schema_file() -> str:
    """The JSON Schema that ships with taut."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


PAGES = {
    "cli.md": cli_page,
    "columns.md": columns_page,
    "api.md": api_page,
    "result.md": result_page,
    "scenario-keys.md": keys_page,
}
SCHEMA = DOCS.parent / "src" / "taut" / "result" / "schema.json"

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
    SCHEMA.write_text(schema_file(), encoding="utf-8")
