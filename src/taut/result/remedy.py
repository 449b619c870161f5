"""What to do about a finding at 3 a.m.: take its hosts out, in the words of two schedulers, and open a ticket.

Names of hosts come from traces. One that could mean more than a host to a scheduler (a range, a list, an option, ``ALL``) is
never put into a command: it is only named.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from decimal import Decimal

from taut.core.rank_words import listed, short_host
from taut.core.tables import Table
from taut.result.types import Drain, Finding, Remedy

HOST_MODES = ("straggler cascade", "silent degradation", "hang")
"""Failure modes that a host can be the cause of: taking it out mends no imbalance, and no stall of a shared disk."""
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def remedy(finding: Finding, members: Table) -> Remedy | None:
    """What to do about a finding; None where no host can be the cause, none is known, or all of several are named."""
    hosts = list(dict.fromkeys(host for host in finding.hosts if host))
    if finding.mode not in HOST_MODES or not hosts or (len(hosts) > 1 and set(hosts) >= set(filter(None, members.host))):
        return None
    return Remedy(do=_do(finding, hosts), drain=_drain(finding.id, hosts), ticket=_ticket(finding, hosts))


def _do(finding: Finding, hosts: Sequence[str]) -> str:
    names = _names(hosts)
    first = "take the stacks of its processes (py-spy dump), then " if finding.mode == "hang" else ""
    return f"{first}let no new job start on {names}, and test {'it' if len(hosts) == 1 else 'them'}"


def _drain(finding: str, hosts: Sequence[str]) -> Drain | None:
    """Commands after which no new job starts there; jobs that run go on. None where a name is not only that of a host."""
    if not all(HOST.fullmatch(host) and host.lower() != "all" for host in hosts):
        return None
    # Slurm knows a node by the first part of its name, Kubernetes by all of it.
    nodes = ",".join(dict.fromkeys(host.split(".", 1)[0] if short_host(host) != host else host for host in hosts))
    reason = shlex.quote(f"taut {finding}")
    return Drain(
        slurm=f"scontrol update nodename={nodes} state=drain reason={reason}",
        kubernetes=f"kubectl cordon {' '.join(map(shlex.quote, hosts))}",
    )


def _ticket(finding: Finding, hosts: Sequence[str]) -> str:
    """What a ticket needs: what, where, since when, how sure, why, and what it costs."""
    first, last = finding.steps
    ranks = listed([str(rank) for rank in finding.ranks])
    lines = [
        f"{finding.mode} on {_names(hosts)}",
        f"Ranks {ranks}{_accelerators(finding.gpus)}, steps {first} to {last}, confidence {100 * finding.confidence:.1f} %.",
        f"Because {_printed(finding.because)}.",
    ]
    if finding.recoverable_wall_ns > 0:
        lines.append(f"Mending it would have saved {finding.recoverable_wall_ns / 1e9:.3g} s of the traced time.")
    if finding.money is not None:
        lines.append(f"It costs {Decimal(finding.money.per_day):.2f} {finding.money.currency} a day while it lasts.")
    return "\n".join([*lines, f"Found by taut as {finding.id}."])


def _accelerators(gpus: Iterable[int | None]) -> str:
    known = sorted({gpu for gpu in gpus if gpu is not None})
    return f" (GPU {listed([*map(str, known)])})" if known else ""


def _names(hosts: Sequence[str]) -> str:
    return listed([_printed(host) for host in hosts])


def _printed(text: str) -> str:
    """Text as it is, or with all that is not shown as escapes: a ticket is pasted elsewhere."""
    return text if text.isprintable() else ascii(text)
