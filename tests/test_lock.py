"""lock.txt: every dependency of the extras that it locks, with hashes, at or above its floor in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "lock.txt").read_text(encoding="utf-8")
EXTRAS = ("serve", "remote", "export", "cluster")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(.*?)(?=^[A-Za-z0-9]|\Z)", re.M | re.S)

VULNERABLE = {
    "h11": "0.14.0",  # CVE-2025-43859: chunked bodies read leniently
    "jinja2": "3.1.5",  # CVE-2025-27516: a way out of the sandbox
    "cryptography": "46.0.6",  # CVE-2026-39892: overflow of buffers that are not contiguous
    "dask": "2025.12.0",  # CVE-2026-23528 of distributed: script in the dashboard
    "fsspec": "2026.5.0",  # its changelog of 2026.6: templates in references are no longer parsed by default
    "click": "8.3.2",  # CVE-2026-7246: commands in click.edit
    "starlette": "1.2.1",  # PYSEC-2026-248: the host of an address is taken from the path
}
"""The last version with a known hole, and the hole."""


def required() -> dict[str, Requirement]:
    """What the package and the locked extras depend on, by name."""
    found: dict[str, Requirement] = {}
    waiting = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra])]
    while waiting:
        one = Requirement(waiting.pop())
        if one.name == PROJECT["name"]:
            waiting += [line for extra in one.extras for line in PROJECT["optional-dependencies"][extra]]
        else:
            found[canonicalize_name(one.name)] = one
    return found


def locked() -> dict[str, list[Version]]:
    """The versions of each name: several where Python versions need different ones."""
    found: dict[str, list[Version]] = {}
    for name, version, _ in PIN.findall(LOCK):
        found.setdefault(canonicalize_name(name), []).append(Version(version))
    return found


@pytest.mark.parametrize("name", sorted(required()))
def test_a_dependency_is_locked_within_its_bounds(name: str) -> None:
    one, versions = required()[name], locked()
    assert name in versions, "renew lock.txt as CONTRIBUTING.md says"
    assert [version for version in versions[name] if version not in one.specifier] == []
    assert [extra for extra in one.extras if canonicalize_name(extra) not in versions] == []


@pytest.mark.parametrize("name", sorted(VULNERABLE))
def test_no_floor_admits_a_version_with_a_known_hole(name: str) -> None:
    assert Version(VULNERABLE[name]) not in required()[name].specifier


def test_every_version_has_a_hash() -> None:
    assert [name for name, _, rest in PIN.findall(LOCK) if "--hash=sha256:" not in rest] == []


def test_the_lock_names_no_index_and_no_path() -> None:
    assert re.findall(r"^.*(?:://|--(?:extra-)?index|--find-links|--trusted-host| @ |[ =]/).*$", LOCK, re.M) == []


def test_contributing_says_how_the_lock_was_made() -> None:
    command = next(line.removeprefix("#").strip() for line in LOCK.splitlines() if "pip compile" in line)
    assert command in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
