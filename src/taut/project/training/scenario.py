"""A scenario: workload × fabric × policy × noise × prices, as one strict TOML file says them.

Every key is a field below and carries its unit; an unknown key is refused, a missing one takes the default and is listed as
such. A device or a fabric is a table, or the name of one that ships with taut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from taut.core import strict_toml as strict
from taut.core.strict_toml import (
    Contradiction,
    Count,
    FailureRate,
    NotNegative,
    Positive,
    Seconds,
    Share,
    Some,
    Strict,
    Times,
    place,
)
from taut.project.about import About
from taut.project.training import uncertain_keys
from taut.project.training.pipeline import deal_layers

__all__ = ["About", "Scenario", "parse", "place"]

# Steps between two meetings, or that replicas may be apart: a forecast simulates all of them, several times.
MOST_STEPS = 1000
# Chunks of a pipeline; more are not laid out.
MOST_CHUNKS = 100_000
# Matrices of a layer that may have adapters.
LORA_MATRICES: tuple[Literal["query_key_value", "output", "up", "down"], ...] = ("query_key_value", "output", "up", "down")


class Model(Strict, frozen=True):
    """A transformer by its hyperparameters."""

    layers: Count
    """Transformer layers."""
    hidden: Count
    """Width of what goes from layer to layer, numbers a token."""
    heads: Count
    """Attention heads."""
    sequence: Count
    """Tokens of a sequence."""
    vocab: Count = 51200
    """Rows of the embedding. Default: GPT-2's 50,257, padded for tensor parallelism (Megatron-LM)."""
    kv_heads: Some = 0
    """Heads of keys and values; 0 for as many as heads."""
    head_width: Some = 0
    """Numbers of a head's query, key and value, of latent attention without those of positions; 0 for hidden over heads."""
    kv_latent: Some = 0
    """Width of the latent that keys and values are made from (latent attention, as in DeepSeek-V2); 0 for none."""
    query_latent: Some = 0
    """Width of the latent that queries are made from; 0 to make them from the hidden state. With kv_latent."""
    rope_width: Some = 0
    """Numbers of a query that tell its position, and of the one key that all heads share for it. With kv_latent."""
    value_width: Some = 0
    """Numbers of a head's value under latent attention; 0 for head_width."""
    ffn: Some = 0
    """Width of the feed-forward block; 0 for four times hidden."""
    gated: bool = False
    """Whether the feed-forward block has a gate (three matrices instead of two)."""
    parallel_blocks: bool = False
    """Whether attention and feed-forward stand side by side: one norm, and one tensor-parallel sum a layer and direction."""
    experts: Some = 0
    """Routed experts of a mixture; 0 for a dense model."""
    experts_per_token: Some = 0
    """Routed experts that a token goes to."""
    expert_ffn: Some = 0
    """Width of one expert; 0 for ffn."""
    shared_experts: Some = 0
    """Experts that every token goes to, beside the routed ones; every rank holds them."""
    dense_layers: Some = 0
    """Layers at the begin that have one feed-forward block of width ffn in place of experts."""
    tied_embeddings: bool = False
    """Whether logits are computed with the matrix of the input embedding; else there are two."""
    flash_attention: bool = False
    """Whether the scores of attention stay on the chip."""
    dropout: bool = True
    """Whether both blocks end with dropout, whose masks are kept."""


class Job(Strict, frozen=True):
    """How the model is trained, and how it is cut."""

    global_batch: Count
    """Sequences of a step, all replicas together."""
    micro_batch: Count = 1
    """Sequences that go through the pipeline at once."""
    dp: Count = 1
    """Replicas (data parallelism)."""
    tp: Count = 1
    """Ranks that every layer is cut into (tensor parallelism)."""
    pp: Count = 1
    """Stages that the layers are dealt to (pipeline parallelism). Layers that pp × virtual_pp does not divide are dealt as
    evenly as can be, and the ends, where embedding and logits lie, are short."""
    cp: Count = 1
    """Ranks that every sequence is cut into (context parallelism)."""
    ep: Count = 1
    """Ranks of dp × cp that share the experts."""
    virtual_pp: Count = 1
    """Chunks of layers a pipeline stage holds (interleaved schedule)."""
    first_stage_layers: Some = 0
    """Layers of the first stage, all its chunks together; 0 for as many as an even deal gives …"""
    last_stage_layers: Some = 0
    """… and of the last, which also has the logits."""
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"
    """In which order a stage takes forward and backward passes."""
    sharding: Literal["none", "zero1", "zero2", "zero3", "hsdp"] = "none"
    """What ranks of dp × cp share instead of holding it each: optimiser state, gradients too, weights too (hsdp: in groups)."""
    shard: Some = 0
    """Ranks that share one copy of the state under hsdp; 0 for those of a node."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What the backward pass computes again: nothing, the core of attention, or whole layers."""
    recompute_layers: Some = 0
    """Layers of a stage that are recomputed in full, the others keep what they need; 0 for all. With recompute = "full"."""
    sequence_parallel: bool = False
    """Whether norms and dropout between the blocks are cut by tp too, along the sequence."""
    precision: Literal["bf16", "fp16", "fp8"] = "bf16"
    """Of the products of linear layers and experts; with fp8 all else (attention, norms, logits, optimiser) stays in bf16."""
    gradient_bytes: Literal[2, 4] = 2
    """Bytes of a gradient, in memory and on its way."""
    lora_rank: Some = 0
    """Width of low-rank adapters; the model is frozen then, only they have gradients and optimiser state. 0 to train it all."""
    lora_matrices: tuple[Literal["query_key_value", "output", "up", "down"], ...] = LORA_MATRICES
    """Matrices with an adapter: those of attention (into and out of it) and of the feed-forward block."""
    expert_imbalance: Times = 1.0
    """Tokens of the busiest rank of an ep group over their mean. Default: even, an assumption; measure it where you can."""
    sent_once_a_node: bool = False
    """Whether a token is sent once to each node that has experts of it, and handed on inside (as DeepEP does); else to each of
    its experts."""
    expert_nodes: Some = 0
    """Most nodes that the experts of a token lie on (routing that is limited so); 0 for any. With sent_once_a_node."""
    overlap_share: Share = 0.0
    """Share of a pass under which data-parallel transfers may hide."""
    tensor_overlap_share: Share = 0.0
    """Share of tensor-parallel transfers that may hide under the products of their layer."""
    context_overlap_share: Share = 0.0
    """Share of context-parallel transfers that may hide under the products of their layer."""
    expert_overlap_share: Share = 0.0
    """Share of expert-parallel transfers that may hide under the products of their layer."""
    pipeline_overlap_share: Share = 0.0
    """Share of a hop to the next stage that the sender does not wait for; who receives does, which schedules may hide."""
    gather_striped: bool = True
    """Whether gathers of sharded parameters use all ports of a node; early implementations used one."""
    scaling: Literal["weak", "strong"] = "weak"
    """Whether more replicas get more to do (weak) or share the batch (strong)."""
    steps_between_syncs: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 1
    """Steps between two data-parallel synchronisations (local steps)."""

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a replica in a step."""
        return self.global_batch // (self.dp * self.micro_batch)


def state_shards(j: Job, node: int) -> int:
    """Ranks that share one copy of the state under hsdp, on nodes of so many devices."""
    return min(j.shard or max(1, node // j.tp), j.dp * j.cp)


class Device(Strict, frozen=True):
    """An accelerator: peak, what of it is reached, memory, power and price."""

    name: str
    """What the device is called."""
    peak_tflops: Positive
    """Peak of matrix products in half precision, dense."""
    memory_gb: Positive
    """Memory, 10⁹ bytes."""
    memory_gb_per_s: Positive
    """Peak bandwidth of that memory."""
    gemm_share: Share = 0.8
    """Share of the peak that a large matrix product reaches. Default: as fitted on A100 steps, rounded."""
    gemm_half_depth: NotNegative = 150.0
    """Inner dimension at which a matrix product reaches half of that. Default: as fitted on A100 steps."""
    attention_share: Annotated[float, Meta(gt=0, le=1)] = 0.7
    """Share of what a large matrix product reaches that fused attention reaches, forward. Default: cuDNN's on an H200
    (``bench/device.py --rest``); FlashAttention-2 has 0.46 on H100 (335 TFLOP/s, Dao 2023, arXiv:2307.08691)."""
    fp8_tflops: Positive | None = None
    """Peak of eight-bit floats; none if the device has no such products."""
    fp8_gemm_share: Share = 0.68
    """Share of ``fp8_tflops`` that a large matrix product of eight-bit floats reaches. Default: measured on an H200."""
    fp8_gemm_half_depth: NotNegative = 240.0
    """Inner dimension at which such a product reaches half of that. Default: measured on an H200."""
    processors: Count = 108
    """Multiprocessors that the tiles of a product are dealt to. Default: those of an A100."""
    memory_share: Share = 0.75
    """Share of the memory bandwidth that element-wise work reaches. Default: as fitted on A100 steps."""
    kernel_us: NotNegative = 5.0
    """Time a kernel takes whatever it does. Default: an assumption; shipped devices have measured ones."""
    host_layer_us: NotNegative = 1000.0
    """Time the host takes to issue the forward pass of a layer: devices faster than that wait for it. Default: as
    fitted on A100 steps."""
    overlap_slowdown: Share = 0.19
    """How much longer work takes while a transfer goes on under it, as a share of the time that it does. Default: the mean over
    A100, H100, MI210 and MI250 (Lee et al. 2025, arXiv:2507.03114)."""
    stall_w: NotNegative = 150.0
    """Power while it waits. Default: as published for H100."""
    load_w: NotNegative = 550.0
    """Power while it computes. Default: as published for H100."""
    price_per_hour: NotNegative | None = None
    """Money for an hour of it; none: unpriced."""


Algorithm = Literal["ring", "tree", "halving-doubling", "in-switch"]


class Protocol(Strict, frozen=True):
    """One way in which a library moves data through a tier: what is quick to begin reaches less of the bandwidth."""

    name: str
    """What the protocol is called."""
    algorithm: Algorithm = "ring"
    """How its members pass data on; in-switch: switches add up."""
    start_us: NotNegative = 0.0
    """Time of a collective whatever its members and its size."""
    latency_times: NotNegative = 1.0
    """How many times the tier's latency a message takes."""
    bandwidth_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of the bandwidth that it reaches."""


class Tier(Strict, frozen=True):
    """One level of a fabric: so many devices reach each other through it."""

    name: str
    """What the tier is called."""
    devices: Count
    """Devices below one switch (or island) of this tier; of rails: below all the rail switches side by side."""
    gb_per_s: Positive
    """What one device can send through this tier when nobody else does; of a dragonfly's group: what joins two routers;
    of a torus: all links of a node together, of which a ring uses one in each direction."""
    latency_us: NotNegative = 0.0
    """Time of a message through this tier (and those inside it), whatever its size; of a torus: for every hop."""
    oversubscription: Times = 1.0
    """Bandwidth below a switch of this tier over bandwidth above it; what turns round in the switch does not feel it."""
    uplinks: Some = 0
    """Cables from a switch of this tier upwards, of which a flow takes one by hash; 0 spreads every flow over all of them."""
    weak_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of its rate that one of these cables still carries, the first of the first switch."""
    striped: bool = False
    """Whether one flow may use the ports of all devices of its node."""
    algorithm: Literal["ring", "tree", "halving-doubling", "hierarchical", "best"] = "ring"
    """Of groups that reach through this tier; hierarchical goes inside the node, across, inside; best is by size."""
    protocols: tuple[Protocol, ...] = ()
    """If given, the quickest of these for the size takes the algorithm's place."""
    scale_nodes: tuple[Count, ...] = ()
    """Nodes that a group lies on, ascending …"""
    scale_shares: tuple[Annotated[float, Meta(gt=0, le=1)], ...] = ()
    """… and the share of the rate that its collectives reach there; between two of them by the logarithm of nodes, beyond the
    last as at the last. None given: all of it, on any number."""
    jitter_us: NotNegative = 0.0
    """How late the transfer of one member of a group ends on average (drawn exponentially); the last of them counts."""
    port_price: NotNegative | None = None
    """Money once for an end of a cable that leads up to this tier, with its share of adapter, switch and cable …"""
    port_w: NotNegative | None = None
    """… and its power; a tier without a price or a power comes with its devices."""
    radix: Some = 0
    """Ports of one of its switches, which is bought whole; 0 to count only ports in use."""
    pj_per_bit: NotNegative | None = None
    """Energy that devices and hosts spend on a bit whose outermost tier this is, beside what its ports draw."""


class Fabric(Strict, frozen=True):
    """What joins the devices: tiers from the inside out. More devices than the outermost holds: islands of it are joined."""

    name: str
    """What the fabric is called."""
    tiers: Annotated[tuple[Tier, ...], Meta(min_length=1)]
    topology: Literal["fat-tree", "rail-optimised", "rail-only", "dragonfly", "torus"] = "fat-tree"
    """How the switches of the tiers are joined."""
    torus: tuple[Count, ...] = ()
    """Nodes along each dimension of a torus."""
    placement: Literal["packed", "scattered"] = "packed"
    """Packed: the job's nodes side by side; scattered: drawn at random."""
    placement_seed: Some = 0
    """Which draw of scattered nodes."""
    reroute: bool = False
    """Whether a weak cable is taken out, and its flows go over the others."""
    nodes: Some = 0
    """Nodes that scattered ones are drawn from; 0 for as many as the job has."""
    currency: str = ""
    """Of the prices of ports; none: that of the scenario. In another one than the scenario's the network has no price."""
    growth: NotNegative = 1.0
    """Share that counts of what transfers take longer than in a replica that is alone; 0 as if others were no further away."""

    @property
    def node(self) -> int:
        """Devices of a node: those of the innermost tier."""
        return self.tiers[0].devices


class Noise(Strict, frozen=True):
    """How work varies: relative to its mean, op by op, rank by rank, and slowly."""

    distribution: Literal["none", "gaussian", "lognormal", "exponential", "gumbel", "pareto", "measured"] = "lognormal"
    """Of the work of an op: what it strays from its mean by; measured: as in a finished run."""
    spread: NotNegative = 0.02
    """Standard deviation of an op's work, as a share of it (pareto: not used). Default: passes of a layer's products on an H200
    under load stray by 1.0, 2.1 and 2.7 % (``bench/device.py --rest``)."""
    tail: Annotated[float, Meta(gt=1, le=1000)] = 3.0
    """Exponent of a pareto distribution."""
    run: str = ""
    """Run folder that measured noise is drawn from."""
    times: NotNegative = 1.0
    """How many times as far as pareto or measured noise says an op's work varies."""
    step_spread: NotNegative = 0.01
    """Standard deviation of what all ops of a rank in one step have in common, as a share of them. Default: rounded; a hundred
    such passes stray by 0.2 to 1.1 %; steps of benchmarks on 128 to 256 devices by 0.05 to 0.5 % (NVIDIA/dgxc-benchmarking),
    as ranks of 0.1 to 1.4 % have it."""
    ranks_spread: NotNegative = 0.005
    """Standard deviation of what ranks differ by for good, as a share of their work. Default: an assumption; one job of 8 or 16
    devices on other nodes of its cluster has been seen to differ by 0.01 to 1.3 %."""
    slow_share: Share = 0.0
    """Share of the devices of an older generation …"""
    slow_factor: Times = 1.0
    """… and how many times as long they take."""
    drift_share: NotNegative = 0.0
    """Standard deviation of a slow drift (heat), as a share of the work …"""
    drift_steps: Positive = 200.0
    """… and the steps over which it forgets itself."""
    hiccups_per_1000_steps: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    """Hiccups that begin in 1000 steps of a rank …"""
    hiccup_ms: NotNegative = 0.0
    """… by how much one lengthens a step of those it hits, on average …"""
    hiccup_spread: NotNegative = 0.0
    """… the standard deviation of that, as a share of it (lognormal) …"""
    hiccup_steps: Annotated[float, Meta(ge=1, le=1e6)] = 1.0
    """… and the steps that one lasts on average."""
    hiccups_together: Literal["rank", "host", "rack", "job"] = "rank"
    """Whom a hiccup hits at once: a rank, or all ranks of a host, a rack (``failure.nodes_per_rack`` hosts) or the job …"""
    hiccups_together_share: Share = 1.0
    """… which this share of the hiccups does; the others hit one rank."""
    periodic_every_s: NotNegative = 0.0
    """Time of work from one regular pause to the next (garbage collection, telemetry), pauses not counted; 0 for none …"""
    periodic_ms: NotNegative = 0.0
    """… how long one is …"""
    periodic_together: Literal["rank", "host", "rack", "job"] = "rank"
    """… and who pauses at once; others do at times of their own."""


class Failure(Strict, frozen=True):
    """What fails, how often, what it takes with it, and what a restart costs. Rates, times, and what saves, cold and hot
    machines cost may be ranges instead of numbers: ``[low, mode, high]`` or ``[low, high]`` (docs/availability.md)."""

    device_per_1000_node_days: FailureRate = 0.0
    """Failures of a device, its memory, its link: the node is taken out with it."""
    node_per_1000_node_days: FailureRate = 0.0
    """Failures of a host or its network card: the node is taken out with it."""
    software_per_1000_node_days: FailureRate = 0.0
    """Failures that stop the job and break no node."""
    rack_per_1000_rack_days: FailureRate = 0.0
    """Outages of a rack, with all its nodes."""
    switch_per_1000_switch_days: FailureRate = 0.0
    """Outages of a switch, with the racks below it."""
    pod_per_1000_pod_days: FailureRate = 0.0
    """Outages of a pod, with all its racks."""
    nodes_per_rack: Count = 4
    """Nodes of a rack. Default: an assumption."""
    racks_per_switch: Count = 1
    """Racks that lose their network with a switch."""
    racks_per_pod: Count = 16
    """Racks that go out with a pod. Default: an assumption."""
    detect_s: Seconds = 120.0
    """From a failure until it is known and the job stopped. Default: an assumption; drawn from 24 to 600 where not given."""
    repair_hours: Annotated[float, Meta(ge=0, le=1e6)] = 12.0
    """Mean time until a broken node is back … Default: an assumption; drawn from 2 to 72 where not given."""
    outage_hours: Annotated[float, Meta(ge=0, le=1e6)] = 4.0
    """… and until a rack, switch or pod is. Default: an assumption; drawn from 1 to 16 where not given."""
    spares: Some | None = None
    """Nodes held ready; where not given, ``spares_share`` says how many."""
    spares_share: Share = 0.05
    """Nodes held ready as a share of the job's, so that they grow with it, where anything fails. Default: of A100 and H100
    nodes 5 % had to be held for failures to be hidden (Cui et al., arXiv:2503.11901)."""
    reschedule_s: Seconds = 180.0
    """From having its nodes until the job reads its checkpoint. Default: an assumption; drawn from 36 to 900 if not given."""
    restore_s: Seconds = 120.0
    """Reading the checkpoint, if storage serves everybody at full speed … Default: an assumption; drawn from 30 to 480 if
    not given."""
    restore_nodes: Some = 0
    """… which it does for so many nodes; more share it. 0 for as many as there are."""
    checkpoint_s: Seconds = 0.0
    """Writing a checkpoint."""
    checkpoint_overlap: Share = 0.0
    """Share of a checkpoint that hides under work (1 for asynchronous); it counts only when it is written in whole."""
    checkpoint_every_s: Seconds = 0.0
    """From one checkpoint to the next, itself included; 0 for the best interval."""
    warmup_steps: NotNegative = 0.0
    """Steps after a restart over which the job gains its speed …"""
    warmup_share: NotNegative = 0.0
    """… and how much slower the first of them is, as a share."""
    heat_steps: NotNegative = 0.0
    """Steps after a restart over which a cool machine gets hot …"""
    heat_share: NotNegative = 0.0
    """… and how much slower a hot one is, as a share."""
    placement_spread: NotNegative = 0.0
    """Standard deviation of what nodes differ by from one placement to another, as a share; the slowest counts …"""
    redrawn_share: Share = 0.0
    """… and the share of them that a restart draws anew: slow nodes may be found again, or lost."""
    ranges: tuple[uncertain_keys.Spread, ...] = ()
    """No key of a file: what the keys above are uncertain by (``uncertain_keys.py``)."""


class Price(Strict, frozen=True):
    """Rates; what is not given stays unpriced."""

    currency: str = ""
    """Of all prices."""
    pue: Annotated[float, Meta(ge=1, le=100)] = 1.56
    """Energy of the site over energy of what computes. Default: mean of the industry (Uptime Institute, survey of 2024)."""
    host_w: NotNegative = 350.0
    """Power of a node without its accelerators (processors, memory, cards, fans), for each of them: a node of 8 H100 was seen
    at 8.4 kW of the 10.2 kW it is rated at (Latif et al., arXiv:2412.08602), 8 × 700 W of it devices."""
    kwh: NotNegative | None = None
    """Money for a kWh."""
    kg_co2e_per_kwh: NotNegative | None = None
    """Carbon of a kWh, kg of CO₂ equivalents."""
    amortisation_years: Positive = 4.0
    """Years over which a network is paid off. Default: an assumption."""
    step_deadline_ms: NotNegative | None = None
    """A promise: steps that take longer …"""
    penalty: NotNegative | None = None
    """… cost this much each."""
    value_per_unit: NotNegative | None = None
    """What a unit of delivered work is worth (training: a million tokens): then money tells where more ranks stop paying."""


class Policies(Strict, frozen=True):
    """What a job does beyond meeting once a step and waiting for everybody. Local steps are ``job.steps_between_syncs``."""

    gate: Literal["barrier", "fastest", "ring", "stale", "hierarchical", "none"] = "barrier"
    """Whom a replica waits for at a meeting: all; all but ``backup_replicas``; its neighbour of ``slack`` meetings ago; the
    slowest of ``slack`` meetings ago; its group now and the slowest of ``slack`` meetings ago; nobody."""
    backup_replicas: Some = 0
    """Replicas whose gradients are dropped: the slowest of every meeting."""
    slack: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 0
    """Meetings that replicas may be apart."""
    group_replicas: Some = 0
    """Replicas that meet first, of a hierarchical gate."""
    clones: Count = 1
    """Replicas that do the same work; the first of them counts."""
    copy_after: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    """Quantile of what its work usually takes after which another group begins a late op too; 0 for never."""
    compression_ratio: Annotated[float, Meta(ge=1, le=1e4)] = 1.0
    """How many times fewer bytes gradients take on their way …"""
    compression_passes: NotNegative = 4.0
    """… and how often they are read or written for it: gradient and residue read, residue and result written."""
    priority: bool = False
    """Whether what the next step needs first goes first, so that transfers hide under its forward pass too."""
    deal_by_speed: bool = False
    """Whether devices of like speed make up a replica, and replicas get work by their speed."""
    power_cap_share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Share of ``device.load_w`` that a device may take: it then computes slower."""
    power_floor_share: Share = 0.0
    """Share of ``device.load_w`` that a waiting device burns at least, so that power swings less."""


class Scenario(Strict, frozen=True):
    """One file."""

    model: Model
    job: Job
    device: Device
    fabric: Fabric
    name: str = "scenario"
    """What the scenario is called."""
    noise: Noise = Noise()
    failure: Failure = Failure()
    policy: Policies = Policies()
    price: Price = Price()
    about: About = About()


def parse(table: Mapping[str, Any], label: str, text: str = "") -> tuple[Scenario, list[str]]:
    """The scenario in a TOML table, and the keys that were not given and took their defaults."""
    middle, ranges = uncertain_keys.taken(table, label, text)
    s, defaults = strict.parse(Scenario, contradictions, middle, label, text)
    for end in (0, -1):  # what is drawn must be as valid as what is given
        strict.parse(Scenario, contradictions, uncertain_keys.at_end(middle, ranges, end), label, text)
    drawn = uncertain_keys.with_defaults(ranges, defaults)
    return replace(s, failure=replace(s.failure, ranges=drawn)), [key for key in defaults if key != "failure.ranges"]


def contradictions(s: Scenario) -> Sequence[Contradiction]:
    """What cannot be, or would do nothing."""
    m, j, f = s.model, s.job, s.fabric
    batch = j.dp * j.micro_batch
    nested = all(outer.devices % inner.devices == 0 for inner, outer in pairwise(f.tiers))
    tiers = s.fabric.tiers
    weak = s.fabric.topology in ("dragonfly", "torus") or any(t.weak_share < 1 and t.uplinks < 2 for t in tiers)
    return (
        *model_contradictions(m),
        (m.heads % j.tp != 0, "job.tp", f"tp {j.tp} does not divide {m.heads} heads", "choose a divisor of the heads"),
        *_stage_contradictions(m, j), *_job_contradictions(m, j),
        (j.global_batch % batch != 0, "job.global_batch", f"{j.global_batch} is no multiple of dp × micro_batch = {batch}",
         "change global_batch, dp or micro_batch"),
        (j.virtual_pp > 1 and j.schedule != "interleaved", "job.virtual_pp",
         f"{j.virtual_pp} chunks need an interleaved schedule", 'set schedule = "interleaved"'),
        (j.schedule == "interleaved" and j.micro_batches % j.pp != 0, "job.global_batch",
         f"an interleaved schedule needs micro-batches in multiples of pp: {j.micro_batches} for pp {j.pp}",
         "change global_batch or micro_batch"),
        (m.experts > 0 and m.experts % j.ep != 0, "job.ep", f"ep {j.ep} does not divide {m.experts} experts",
         "choose a divisor"),
        (m.experts == 0 and j.ep > 1, "job.ep", "a dense model has no experts to spread", "set ep = 1, or model.experts"),
        *spread_state(j),
        (j.precision == "fp8" and s.device.fp8_tflops is None, "job.precision", f"{s.device.name} has no products in fp8",
         'set precision = "bf16", or device.fp8_tflops'),
        (m.sequence % j.cp != 0, "job.cp", f"cp {j.cp} does not divide the sequence of {m.sequence}", "choose a divisor"),
        (any(len(t.scale_nodes) != len(t.scale_shares) or list(t.scale_nodes) != sorted(set(t.scale_nodes)) for t in tiers),
         "fabric.scale_nodes", "not ascending, or not as many as scale_shares", "give a share for each number of nodes"),
        (not nested, "fabric.tiers", "the devices of a tier are no multiple of those of the tier inside it",
         "order the tiers from the inside out, each a multiple of the one before"),
        *filled_torus(s),
        (f.topology == "dragonfly" and len(f.tiers) < 3, "fabric.tiers", "a dragonfly has nodes, routers and groups",
         "give at least three tiers"),
        (weak and any(t.weak_share < 1 for t in tiers), "fabric.weak_share", "a weak cable needs others beside it",
         "give its tier two uplinks or more, in a tree or on rails"),
        *gates(s.policy, j), *_policy_contradictions(s),
        *pause_contradictions(s.noise),
        (s.noise.distribution == "measured" and not s.noise.run, "noise.run", "measured noise needs a run folder", "name one"),
    )  # fmt: skip


def model_contradictions(m: Model) -> Sequence[Contradiction]:
    """What cannot be of a model, wherever it runs."""
    of_experts = {"shared_experts": m.shared_experts, "expert_ffn": m.expert_ffn, "dense_layers": m.dense_layers,
                  "experts_per_token": m.experts_per_token}  # fmt: skip
    of_latents = {"query_latent": m.query_latent, "rope_width": m.rope_width, "value_width": m.value_width}
    per_token = 1 <= m.experts_per_token <= m.experts
    return (
        (m.head_width == 0 and m.hidden % m.heads != 0, "model.heads", f"{m.heads} heads do not divide hidden {m.hidden}",
         "choose a divisor, or give head_width"),
        (m.experts > 0 and not per_token, "model.experts_per_token", f"{m.experts_per_token} of {m.experts} experts per token",
         "give 1 or more, at most experts"),
        *((m.experts == 0 and value > 0, f"model.{key}", "a dense model has no experts", "set model.experts, or take it out")
          for key, value in of_experts.items()),
        (m.experts > 0 and m.dense_layers >= m.layers, "model.dense_layers", f"{m.dense_layers} of {m.layers} layers are dense",
         "give fewer, or set experts = 0"),
        (m.experts > 0 and m.parallel_blocks, "model.parallel_blocks", "experts beside attention are not modelled",
         "set parallel_blocks = false"),
        *((m.kv_latent == 0 and value > 0, f"model.{key}", "does nothing without latent attention",
           "set model.kv_latent, or take it out") for key, value in of_latents.items()),
        (m.kv_latent > 0 and m.kv_heads not in (0, m.heads), "model.kv_heads",
         "latent attention gives every head keys and values of its own", "take it out"),
    )  # fmt: skip


def _stage_contradictions(m: Model, j: Job) -> Sequence[Contradiction]:
    """Whether the layers can be dealt to the stages."""
    ends, chunks = (j.first_stage_layers, j.last_stage_layers), j.pp * j.virtual_pp
    rest, others = m.layers - sum(ends), j.pp - sum(one > 0 for one in ends)
    given = "job.first_stage_layers" if ends[0] else "job.last_stage_layers"
    # Embedding and logits may be chunks of their own, as in Llama 3: 126 layers in 128 chunks.
    too_many = m.layers < j.pp or chunks > min(m.layers + 2, MOST_CHUNKS)
    unfit = any(ends) and not (rest >= others if others > 0 else rest == others == 0)
    most = 0 if too_many or unfit else max(stage_layers(m.layers, j))
    return (
        (too_many, "job.pp", f"{chunks} pipeline chunks (pp × virtual_pp) for {m.layers} layers",
         "lower pp or virtual_pp: only the first and the last chunk may be without layers"),
        (unfit, given, f"leaves {rest} of {m.layers} layers to {max(others, 0)} other stages", "give every stage one or more"),
        (j.recompute_layers > 0 and j.recompute != "full", "job.recompute_layers",
         f'does nothing with recompute = "{j.recompute}"', 'set recompute = "full", or take it out'),
        (0 < most < j.recompute_layers, "job.recompute_layers",
         f"{j.recompute_layers} layers, and no stage has more than {most}", "lower it, or set 0 for all"),
    )  # fmt: skip


def stage_layers(layers: int, j: Job) -> list[int]:
    """Layers of every stage."""
    dealt = deal_layers(layers, j.pp, j.virtual_pp, (j.first_stage_layers, j.last_stage_layers))
    return [sum(dealt[stage :: j.pp]) for stage in range(j.pp)]


def _job_contradictions(m: Model, j: Job) -> Sequence[Contradiction]:
    """Keys that would do nothing, or name what is not modelled."""
    of_blocks = {"up", "down"} & set(j.lora_matrices)
    return (
        (j.lora_rank == 0 and j.lora_matrices != LORA_MATRICES, "job.lora_matrices", "does nothing without adapters",
         "set job.lora_rank, or take it out"),
        (not j.lora_matrices or len(set(j.lora_matrices)) < len(j.lora_matrices), "job.lora_matrices",
         "names no matrix, or one twice", "name each matrix with an adapter once"),
        (j.lora_rank > 0 and m.experts > 0 and bool(of_blocks), "job.lora_matrices", "adapters of experts are not modelled",
         'set lora_matrices = ["query_key_value", "output"]'),
        (j.expert_nodes > 0 and not j.sent_once_a_node, "job.expert_nodes", "does nothing where every expert is sent to",
         "set sent_once_a_node = true"),
        (j.expert_imbalance > j.ep, "job.expert_imbalance",
         f"a rank of {j.ep} cannot have {j.expert_imbalance:g} times the mean", f"give {j.ep} at most"),
    )  # fmt: skip


def pause_contradictions(n: Noise) -> Sequence[Contradiction]:
    """Hiccups and regular pauses that would do nothing."""
    return (
        ((n.hiccups_per_1000_steps > 0) != (n.hiccup_ms > 0), "noise.hiccup_ms", "hiccups have a rate and a length",
         "set hiccups_per_1000_steps and hiccup_ms together"),
        (n.hiccups_together != "rank" and n.hiccups_per_1000_steps == 0, "noise.hiccups_together", "there are no hiccups",
         "set hiccups_per_1000_steps and hiccup_ms"),
        ((n.periodic_every_s > 0) != (n.periodic_ms > 0), "noise.periodic_ms", "regular pauses have a period and a length",
         "set periodic_every_s and periodic_ms together"),
        (0 < n.periodic_every_s * 1e3 <= n.periodic_ms, "noise.periodic_ms",
         f"{n.periodic_ms:g} ms are longer than the period of {n.periodic_every_s:g} s", "give a shorter pause"),
    )  # fmt: skip


def spread_state(j: Job) -> Sequence[Contradiction]:
    """Whether the ranks that hold the same layers can be dealt into groups that hold all experts, or one copy of the state."""
    ranks, shard = j.dp * j.cp, j.shard if j.sharding == "hsdp" else 0
    return (
        (ranks % j.ep != 0, "job.ep", f"experts over {j.ep} ranks, and dp × cp = {ranks} is no multiple of it",
         "choose a divisor of dp × cp"),
        (0 < shard < ranks and ranks % shard != 0, "job.shard", f"state over {shard} ranks, and dp × cp = {ranks} is no "
         "multiple of it", "choose a divisor of dp × cp"),
    )  # fmt: skip


def filled_torus(s: Scenario) -> Sequence[Contradiction]:
    """Whether a torus has room for the job; it does not grow with it."""
    f = s.fabric
    has, nodes = prod(f.torus) if f.torus else 0, max(-(-s.job.world // f.node), f.nodes)
    return ((f.topology == "torus" and (len(f.tiers) < 2 or has < nodes), "fabric.torus", f"a torus of {has} nodes for {nodes}",
             "give two tiers and as many nodes as are needed"),)  # fmt: skip


def gates(p: Policies, j: Job) -> Sequence[Contradiction]:
    """What a gate needs, and keys that would do nothing at it."""
    distinct = j.dp // p.clones
    return (
        (j.dp % p.clones != 0, "policy.clones", f"{j.dp} replicas cannot be divided into groups of {p.clones} clones",
         "choose a divisor of dp"),
        ((p.gate == "fastest") != (p.backup_replicas > 0), "policy.backup_replicas", "go with the gate of the fastest",
         'set gate = "fastest" and backup_replicas together'),
        (p.backup_replicas >= distinct, "policy.backup_replicas", f"{p.backup_replicas} of {distinct} replicas",
         "wait for at least one"),
        (p.slack > 0 and p.gate not in ("ring", "stale", "hierarchical"), "policy.slack", f"does nothing at a gate {p.gate!r}",
         'set gate = "ring", "stale" or "hierarchical", or slack = 0'),
        (p.slack < 1 and p.gate in ("ring", "hierarchical"), "policy.slack", f"a gate {p.gate!r} needs 1 or more", "set it"),
        ((p.gate == "hierarchical") != (p.group_replicas > 0), "policy.group_replicas", "go with a hierarchical gate",
         'set gate = "hierarchical" and group_replicas together'),
        (p.group_replicas > 0 and distinct % p.group_replicas != 0, "policy.group_replicas",
         f"{distinct} replicas cannot meet in groups of {p.group_replicas}", "choose a divisor"),
    )  # fmt: skip


def _policy_contradictions(s: Scenario) -> Sequence[Contradiction]:
    """Policies that would do nothing, or cannot be."""
    p, j, d = s.policy, s.job, s.device
    return (
        (p.compression_ratio > 1 and j.sharding == "zero3", "policy.compression_ratio",
         "fully sharded gradients are scattered layer by layer, and are not compressed here", "choose another sharding"),
        (p.priority and j.overlap_share == 0, "policy.priority", "nothing overlaps", "set job.overlap_share"),
        (d.load_w * p.power_cap_share <= d.stall_w and p.power_cap_share < 1, "policy.power_cap_share",
         f"leaves a device {d.load_w * p.power_cap_share:g} W, and it takes {d.stall_w:g} W waiting", "raise it"),
        (p.power_floor_share > p.power_cap_share, "policy.power_floor_share", "lies above the cap", "lower it"),
    )  # fmt: skip
