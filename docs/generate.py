"""Write the pages that are made from the code: docs/cli.md, docs/columns.md, docs/api.md, docs/result.md; and the JSON Schema.

Run `python docs/generate.py` after changing a command, a column or a public name; the tests compare.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner
from msgspec import UNSET

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
    """Every row type: a dataclass whose fields are columns."""
    found = {
        thing
        for module in modules()
        for thing in vars(module).values()
        if inspect.isclass(thing)
        and thing.__module__ == module.__name__
        and dataclasses.is_dataclass(thing)
        and any("dtype" in f.metadata for f in dataclasses.fields(thing))
    }
    return sorted(found, key=lambda row: (row.__module__, inspect.getsourcelines(row)[1]))


def first_line(thing: object) -> str:
    """The first line of a docstring, safe inside a table."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", "\\|")


def columns_page() -> str:
    """Every column of every table, with its type and meaning."""
    parts = [
        MADE,
        "# Columns",
        "Every table of a run. Times are whole nanoseconds; an integer that was not measured is -1, a name that is not known "
        "is empty. In the Parquet files of a run folder every code is the word it stands for (dictionary-encoded): `kind`, "
        "`name`, `lane`, `verb` and `group` of `ops.parquet` and `gates.parquet`, `fate` and `name` of `ledger.parquet`. "
        "`findings.parquet`, `causes.parquet` and `steps.parquet` hold `findings`, `blame` and `windows` of "
        "[the result](result.md), `ranks.parquet` who each rank is, the wait it caused, and its time by fate.",
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


def schema_file() -> str:
    """The JSON Schema that ships with taut."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


PAGES = {"cli.md": cli_page, "columns.md": columns_page, "api.md": api_page, "result.md": result_page}
SCHEMA = DOCS.parent / "src" / "taut" / "result" / "schema.json"

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
    SCHEMA.write_text(schema_file(), encoding="utf-8")
