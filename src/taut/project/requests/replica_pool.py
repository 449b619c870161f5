"""What scenarios of requests and of tasks have in common: a model on a pool of replicas, with its prices and noise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from taut.core import strict_toml as strict
from taut.core.errors import UsageError
from taut.core.strict_toml import Contradiction, Count, NotNegative, Share, Strict
from taut.project.about import About
from taut.project.training.model_shape import HALF, kv_width, parameters
from taut.project.training.scenario import Device, Fabric, Model, Noise, Price, model_contradictions

# Share of the memory that weights, keys and values may fill (as inference servers set it by default).
USABLE = 0.9


class ReplicaPool(Strict, frozen=True, kw_only=True):
    """Replicas of a model, and what becomes of attempts that fail."""

    replicas: Count
    """Replicas of the model."""
    tp: Count = 1
    """Devices that every layer of a replica is cut into."""
    max_batch: Count
    """Most requests or calls that a server works on at once."""
    load: Literal["fixed", "per replica"] = "per replica"
    """Whether more replicas share the load (fixed) or are given as much more (per replica)."""
    retry_budget: NotNegative | None = None
    """Most retries as a share of what was asked for so far (requests, or all calls); none: no limit."""
    cancels: bool = True
    """Whether servers hear that an attempt was given up, and drop it."""
    prefix_cache_share: Share = 0.0
    """Share of prompt tokens that every server has cached (a common preamble)."""
    stall_s: NotNegative = 0.0
    """Length of a stall of all servers, a third into the run; 0: none."""

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica."""
        return 1

    @property
    def devices(self) -> int:
        """Accelerators of a replica."""
        return self.tp * self.stages

    @property
    def shares_load(self) -> bool:
        """Whether more replicas share the same load."""
        return self.load == "fixed"


class PoolScenario(Strict, frozen=True, kw_only=True):
    """One file."""

    model: Model
    device: Device
    fabric: Fabric
    name: str = "scenario"
    """What the scenario is called."""
    noise: Noise = Noise()
    price: Price = Price()
    about: About = About()

    @classmethod
    def parse(cls, table: Mapping[str, Any], label: str, text: str = "") -> tuple[Self, list[str]]:
        """The scenario in a TOML table, and the keys that were not given and took their defaults."""
        return strict.parse(cls, cls.contradictions, table, label, text)

    def contradictions(self) -> Sequence[Contradiction]:
        """What is wrong with it, key by key."""
        raise NotImplementedError

    @property
    def pool(self) -> ReplicaPool:
        """The table that has the replicas."""
        raise NotImplementedError

    @property
    def per_s(self) -> float:
        """Requests or tasks a second, all replicas together."""
        raise NotImplementedError

    @property
    def ranks(self) -> int:
        """Accelerators of all replicas."""
        return self.pool.replicas * self.pool.devices

    @property
    def kv_tokens(self) -> float:
        """Tokens whose keys and values fit beside the weights of a replica."""
        memory = USABLE * self.device.memory_gb * 1e9 * self.pool.tp * self.pool.stages
        return (memory - HALF * parameters(self.model)) / kv_bytes(self.model)


def kv_bytes(m: Model) -> float:
    """Keys and values of a token that are kept, all layers; latent attention keeps latents."""
    # More heads than hidden are refused, but only after the room for tokens is known.
    wide = m.kv_latent + m.rope_width if m.kv_latent else max(kv_width(m), 1)
    return 1.0 * HALF * m.layers * wide


def replicas_on(pool: ReplicaPool, ranks: int) -> tuple[int, float]:
    """(replicas on these ranks, factor of the load that they get)."""
    if ranks % pool.devices:
        raise UsageError(f"{ranks} accelerators: a replica takes {pool.devices} (tp × pp); give a multiple of it")
    replicas = ranks // pool.devices
    return replicas, 1.0 if pool.shares_load else replicas / pool.replicas


def pool_contradictions(s: PoolScenario, table: str, deadline: str) -> Iterator[Contradiction]:
    """What cannot be of a model on replicas; ``table`` has the replicas, ``deadline`` is the key for what was promised."""
    m, tp, room = s.model, s.pool.tp, s.kv_tokens
    yield from model_contradictions(m)
    yield m.heads % tp != 0, f"{table}.tp", f"tp {tp} does not divide {m.heads} heads", "choose a divisor of the heads"
    why = f"beside the model there is room for {max(room, 0):,.0f} tokens, one request may have {m.sequence:,}"
    yield room < m.sequence, "device.memory_gb", why, f"raise {table}.tp, or lower model.sequence"
    measured = s.noise.distribution == "measured"
    yield measured, "noise.distribution", f"{table} takes no noise from runs", "give a distribution"
    pauses = s.noise.hiccups_per_1000_steps > 0 or s.noise.periodic_every_s > 0
    yield pauses, "noise.hiccups_per_1000_steps", f"[{table}] has no pauses of ranks", f"give {table}.stall_s, or none"
    wrong_key = s.price.step_deadline_ms is not None
    yield wrong_key, "price.step_deadline_ms", f"[{table}] has a deadline of its own", f"give {deadline}"
