"""What is fuzzed: for every target its seeds, its mutators, and how a case is asked."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fuzzing import folders, judge, live_collector, logs, options, runs, seeds, tabular, trees, trust
from fuzzing.judge import Case, Judge
from fuzzing.mutate import Mutator, lines, mixed, raw
from fuzzing.seeds import Seed

Make = Callable[[], list[Seed]]


@dataclass(frozen=True)
class Target:
    """One kind of input."""

    name: str
    make: Make
    mutate: Callable[[Random, Seed, int], Case]
    judge: Judge
    weight: float = 1.0
    """Share of the cases, relative to the others."""
    limit_s: float = 10.0
    """A case that takes longer is a hang …"""
    slow: str = "hang"
    """… or slow, where the input itself says how much is to be computed."""

    @functools.cached_property
    def seeds(self) -> list[Seed]:
        """Its seeds, made once."""
        return self.make()

    def case(self, seed: int, number: int) -> Case:
        """The case of this number: the same on every machine."""
        rng = Random(f"{seed}:{self.name}:{number}")
        one = rng.choice(self.seeds)
        try:
            return self.mutate(rng, one, number)
        except Exception:  # what a mutator cannot do to its own product is done to the bytes
            name = rng.choice(one.changed)
            return Case({**one.files, name: raw(rng, one.files[name])}, self.mutate(Random(0), one, number).args, number)

    def whole(self) -> list[Case]:
        """The seeds as they are, where the files alone make a case."""
        return [Case(dict(one.files)) for one in self.seeds] if self.judge is not judge.command else []


def files(mutator: Mutator | dict[str, Mutator]) -> Callable[[Random, Seed, int], Case]:
    """Mutates one file of a seed, seldom two, seldom the folder: a file gone, doubled or under another name."""

    def mutate(rng: Random, seed: Seed, number: int) -> Case:
        held = dict(seed.files)
        for _ in range(2 if rng.random() < 0.1 else 1):
            name = rng.choice(seed.changed)
            one = mutator if callable(mutator) else mutator[name.rpartition(".")[2]]
            held[name] = one(rng, seed.files[name])
        if rng.random() < 0.04:
            name = rng.choice(list(held))
            held[rng.choice(["x.json", "rank7.json", "a b.csv", "rank1", "t.txt", "\udcff.log"])] = held[name]
            if rng.random() < 0.5 and len(held) > 1:
                del held[name]
        return Case(held, number=number)

    return mutate


def reader(
    name: str, make: Make, *mutators: Mutator, ask: Judge = judge.analyze, bare: float = 0.2, weight: float = 1.0
) -> Target:
    """A target whose files are read by ``analyze``."""
    return Target(name, make, files(mixed(*mutators, bare=bare)), ask, weight)


JSON, JSONL = trees.json_tree, trees.json_lines
LOG = mixed(lines, bare=0.15)
BY_SUFFIX: dict[str, Mutator] = {
    "json": mixed(JSON), "jsonl": mixed(JSONL), "csv": mixed(tabular.csv), "txt": mixed(tabular.pipes, lines), "log": LOG,
    "out": LOG, "err": LOG,
}  # fmt: skip

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        reader("kineto", seeds.kineto, JSON, weight=2),
        reader("op-table", seeds.op_tables, tabular.csv, weight=2),
        reader("op-parquet", seeds.op_parquet, tabular.parquet, bare=0.05),
        reader("step-times", seeds.step_times, tabular.csv),
        reader("nsys", seeds.nsys, tabular.sqlite, bare=0.1),
        reader("otf2", seeds.otf2, raw, weight=0.3),
        reader("flight-json", seeds.flight_json, JSON),
        reader("flight-pickle", seeds.flight_pickle, trees.pickled),
        reader("otlp", seeds.otlp, JSONL),
        reader("inspector", seeds.inspector, JSONL),
        reader("chakra-proto", seeds.chakra_proto, trees.delimited),
        reader("chakra-json", seeds.chakra_json, JSON),
        reader("execution", seeds.execution, JSON),
        reader("xplane", seeds.xplane, trees.nested_messages),
        reader("xla-viewer", seeds.xla_viewer, JSON),
        reader("progress", logs.progress, JSONL, tabular.csv, ask=judge.beside),
        reader("metric-text", logs.metric_texts, lines, ask=judge.beside),
        reader("metric-csv", logs.metric_csv, tabular.csv, ask=judge.beside),
        reader("metric-parquet", logs.metric_parquet, tabular.parquet, ask=judge.beside, bare=0.05),
        reader("metric-lines", logs.metric_lines, JSONL, ask=judge.beside),
        reader("metric-matrix", logs.metric_matrix, JSON, ask=judge.beside),
        reader("sacct", logs.sacct, tabular.pipes, lines, ask=judge.both),
        reader("sacct-json", logs.sacct_json, JSON, ask=judge.both),
        reader("slurmctld", logs.slurmctld, lines, ask=judge.both),
        reader("kubernetes", logs.kubernetes, JSON, JSONL, ask=judge.both),
        reader("job-json", logs.job_tables, JSON, JSONL, ask=judge.both),
        reader("job-csv", logs.job_csv, tabular.csv, ask=judge.both),
        reader("training-log", logs.training_logs, lines, ask=judge.both),
        reader("kube-audit", logs.kube_audit, JSONL, ask=judge.control),
        reader("action-csv", logs.action_csv, tabular.csv, ask=judge.control),
        reader("action-json", logs.action_json, JSONL, JSON, ask=judge.control),
        reader("ray-serve", logs.ray_serve, lines, ask=judge.control),
        reader("action-lines", logs.action_lines, lines, ask=judge.control),
        reader("gzip", folders.gzipped, tabular.zipped(JSON), bare=0.1),
        reader("tar", folders.archives, tabular.tarred(JSON), bare=0.1),
        Target("folder", folders.folders, files(BY_SUFFIX), judge.analyze, weight=2),
        Target("topology", options.topologies, options.beside_ops("--topology"), judge.command),
        Target("options", options.values, options.asked, judge.command),
        Target("scenario", options.scenarios, options.projected, judge.command, weight=0.5, limit_s=20, slow="slow"),
        Target("loops", options.loops, options.reviewed, judge.command),
        Target("requests", options.requests, options.requested, options.read_requests),
        Target("wire", live_collector.seeds, live_collector.mutated, live_collector.judge, limit_s=60),
        Target("runs", runs.seeds, runs.mutated, judge.command, weight=3, limit_s=15),
        Target("again", trust.logs, trust.foreign_log, trust.again),
        Target("pull", trust.folders, trust.foreign_folder, trust.pull),
    )
}
