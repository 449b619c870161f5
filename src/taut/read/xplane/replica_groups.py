"""Groups of replicas as HLO writes them → process groups of a device's ops."""

from __future__ import annotations

from taut.read.xplane.hlo_programs import Groups

EVERYBODY = "all replicas"
SHOWN = 16


class ReplicaGroups:
    """The groups that one device is in.

    Replicas are numbered as devices are, which is certain of one group that holds all of them. Of several groups it is taken
    only where ``in_order`` says that the kind of device is numbered so, and only where all replicas are in this profile:
    else whom a collective meets is left open, because a wrong match is worse than none.
    """

    def __init__(self, device: int, devices: int, in_order: bool) -> None:
        self._device, self._devices, self._in_order = device, devices, in_order
        self.ranks: dict[str, list[int]] = {}
        """Group → its replicas, where they are listed."""

    def of(self, groups: Groups | None) -> str | None:
        """The group that a collective meets in; empty where the profile does not tell, None where it is not known."""
        if groups is None:
            return ""
        if not groups:
            return EVERYBODY
        mine = groups[0] if len(groups) == 1 else self._mine(groups)
        if not mine or len(set(mine)) < len(mine):
            return None
        shown = ",".join(map(str, mine[:SHOWN])) + (f",… of {len(mine)}" if len(mine) > SHOWN else "")
        name = f"replicas {shown}"
        self.ranks[name] = sorted(mine)
        return name

    def _mine(self, groups: Groups) -> tuple[int, ...]:
        local = all(replica < self._devices for group in groups for replica in group)
        found = [group for group in groups if self._device in group]
        return found[0] if self._in_order and local and len(found) == 1 else ()
