"""Resources of a bill meet hosts of the logs: by a mapping, an id, a name, a tag; what is ambiguous meets nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.read.focus.focus_charged import Charged

NONE = -1
"""Code of a host that is not known."""
TAGS = frozenset(
    [
        "name",
        "host",
        "hostname",
        "node",
        "nodename",
        "nodeid",
        "instance",
        "instancename",
        "vmname",
        "servername",
        "server",
        "machine",
        "machinename",
        "slurmnode",
        "slurmnodename",
        "slurmhost",
        "computername",
        "kubernetesiohostname",
    ]
)
"""Tags that name a host, spelled without case, signs and the prefixes of exporters."""
TAG_PREFIX = re.compile(r"^(?:user|aws|system|resourcetags?|tags?|labels?)[:/]", re.IGNORECASE)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_WORD = re.compile(r"[a-z0-9]+")
# Names of more words than this are sentences, not names of hosts.
WORDS = 16


class Hosts:
    """The hosts that logs name, to be found by whatever a bill calls them."""

    def __init__(self, names: Sequence[str], mapping: Mapping[str, str] | None = None) -> None:
        """``mapping`` says resource → host where names do not."""
        self.names = list(names)
        self._full = _once((name.strip().lower(), code) for code, name in enumerate(self.names) if name.strip())
        self._short = _once((short(name), code) for code, name in enumerate(self.names) if name.strip())
        self.added: list[str] = []
        self._mapped = {key.strip().lower(): self._named(host) for key, host in (mapping or {}).items()}

    def _named(self, host: str) -> int:
        """The host that a mapping names; one that no log names is a host all the same: nobody held it."""
        found = self.equal(host)
        if found == NONE:
            self.names.append(host)
            self.added.append(host)
            found = len(self.names) - 1
            self._full[host.strip().lower()] = found
        return found

    def mapped(self, text: str | None) -> int:
        """The host that the mapping gives for a resource, by its id or the last part of that, or by its name."""
        if not text or not self._mapped:
            return NONE
        return next((self._mapped[one] for one in _spelled(text) if one in self._mapped), NONE)

    def equal(self, text: str | None) -> int:
        """The host of exactly this name; without case, and without a domain where that leaves only one."""
        for one in _spelled(text or ""):
            found = self._full.get(one, self._short.get(short(one), NONE))
            if found != NONE:
                return found
        return NONE

    def inside(self, text: str | None) -> int:
        """The host whose name stands in a text as whole words, if that is only one."""
        lower = (text or "").lower()
        words = [match.span() for match in _WORD.finditer(lower)][: WORDS + 1]
        if len(words) > WORDS:
            return NONE
        parts = (lower[words[i][0] : words[j][1]] for i in range(len(words)) for j in range(i, len(words)))
        found = {code for part in parts if (code := self._full.get(part, self._short.get(part, NONE))) != NONE}
        return found.pop() if len(found) == 1 else NONE


class Met(Struct, frozen=True):
    """What each charge's resource met."""

    host: Ints
    """Code of its host; -1 for none."""
    names: list[str]
    """Codes → hosts: those of the logs, then those that only a mapping names."""


def meet(v: Charged, hosts: Hosts) -> Met:
    """The host of every charge: the surest of what its columns say."""
    ids, names, tags = ("ResourceId", "ResourceName", "Tags")
    found = np.full(v.table.num_rows, NONE, dtype=np.int64)
    for column, ask in (
        (ids, hosts.mapped),
        (names, hosts.mapped),
        (ids, hosts.equal),
        (names, hosts.equal),
        (tags, lambda text: by_tag(text, hosts)),
        (names, hosts.inside),
    ):
        texts, code = v.words(column)
        told = np.array([ask(text) for text in texts], dtype=np.int64)
        found = np.where(found == NONE, told[code], found)
    return Met(found, hosts.names)


def by_tag(text: str | None, hosts: Hosts) -> int:
    """The host that the tags of a resource name."""
    found = {code for value in host_tags(text) if (code := hosts.equal(value)) != NONE}
    return found.pop() if len(found) == 1 else NONE


def host_tags(text: str | None) -> list[str]:
    """The values of those tags that name hosts."""
    return [value for key, value in tags_of(text) if key in TAGS]


def tags_of(text: str | None) -> Iterator[tuple[str, str]]:
    """Tags as (key without case, signs and the exporter's prefix, value)."""
    if not text or text[:1] != "{":
        return
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return
    for key, value in found.items():
        if isinstance(value, str):
            yield re.sub(r"[^a-z0-9]", "", TAG_PREFIX.sub("", key).lower()), value


def short(name: str) -> str:
    """A name without case and domain; an address has none."""
    name = name.strip().lower()
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0]


def stem(name: str) -> str:
    """What names of one pool share: a name without domain, its numbers taken out."""
    return re.sub(r"\d+", "#", short(name))


def _spelled(text: str) -> list[str]:
    """A resource as it may be called: whole, and the last part of a path or of an ARN."""
    whole = text.strip().lower()
    last = re.split(r"[/:]", whole)[-1]
    return [one for one in dict.fromkeys((whole, last)) if one]


def _once(named: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Name → code, of names that are only one's."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for name, code in named:
        if found.setdefault(name, code) != code:
            twice.add(name)
    return {name: code for name, code in found.items() if name not in twice}
