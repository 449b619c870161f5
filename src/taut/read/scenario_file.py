"""Scenario files: TOML → a table, with the devices and fabrics it names put in.

``device = "a100-80g"`` stands for the table that ships with taut under that name, ``device = "./mine.toml"`` for one beside
the scenario; keys of a table ``[device]`` with ``base = "a100-80g"`` are put over it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.read.config_text import load_text, parsed
from taut.result.types import ListedScenario

SHIPPED = resources.files("taut").joinpath("scenarios")
PARTS = {"device": "devices", "fabric": "fabrics"}
REMEDY = "give the scenario, a TOML file"


def load(path: str | Path) -> tuple[dict[str, Json], str]:
    """(table, text) of a scenario: a file, or the name of one that ships with taut."""
    here = Path(path)
    if not here.exists() and here.suffix == "" and "/" not in str(path):
        text = shipped_text(str(path), "give a TOML file, or one of")
    else:
        text = load_text(here, REMEDY)
    return load_parts(parsed(text, str(path)), here), text


def shipped_text(name: str, remedy: str = "give one of") -> str:
    """The TOML of a scenario that ships with taut."""
    text = _shipped("", name)
    if text is None:
        raise InputRefused(name, "no such scenario", f"{remedy}: {', '.join(names('')) or 'none yet'}")
    return text


def load_parts(table: dict[str, Json], beside: Path = Path()) -> dict[str, Json]:
    """A scenario's table with the devices and fabrics it names put in."""
    named = {part: _whole(table[part], part, folder, beside) for part, folder in PARTS.items() if part in table}
    return {**table, **named, **_requests(table.get("arrivals"), beside)}


def _requests(arrivals: Json, beside: Path) -> dict[str, Json]:
    """``arrivals`` with the requests of the file that it names, which lies beside the scenario."""
    file = arrivals.get("file") if isinstance(arrivals, dict) else None
    if not isinstance(arrivals, dict) or not isinstance(file, str) or not file:
        return {}
    from taut.read.request_log import load as load_requests

    return {"arrivals": {**arrivals, **load_requests(beside.parent / file)}}


def names(folder: str) -> list[str]:
    """What ships with taut: scenarios, or the devices or fabrics among them."""
    at = SHIPPED.joinpath(folder) if folder else SHIPPED
    return sorted(one.name.removesuffix(".toml") for one in at.iterdir() if one.name.endswith(".toml")) if at.is_dir() else []


def listed() -> list[ListedScenario]:
    """The scenarios that ship with taut."""
    out = []
    for name in names(""):
        about = parsed(str(_shipped("", name)), name).get("about") or {}
        pattern, computes, decision = (str(about.get(key, "")) for key in ("pattern", "computes", "decision"))
        out.append(ListedScenario(name=name, pattern=pattern, computes=computes, decision=decision))
    return out


def _whole(value: Json, part: str, folder: str, beside: Path) -> Json:
    """The table that a name stands for, with what is given put over it."""
    if isinstance(value, str):
        return _named(value, part, folder, beside)
    base = value.get("base") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(base, str):
        return {**_named(base, part, folder, beside), **{k: v for k, v in value.items() if k != "base"}}
    return value


def _named(name: str, part: str, folder: str, beside: Path) -> dict[str, Json]:
    if name.endswith(".toml"):
        return parsed(load_text(beside.parent / name, REMEDY), name)
    text = _shipped(folder, name)
    if text is None:
        raise InputRefused(beside, f"{part}: no {name!r} ships with taut", f"one of {', '.join(names(folder))}, or a file")
    return parsed(text, f"{folder}/{name}.toml")


def _shipped(folder: str, name: str) -> str | None:
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name not in names(folder):
        return None
    return (SHIPPED.joinpath(folder) if folder else SHIPPED).joinpath(f"{name}.toml").read_text(encoding="utf-8")
