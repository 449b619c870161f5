"""The same road on foot: read, link, replay, blame. Each noun is a value that can be looked at."""

from importlib.resources import as_file, files

import taut

with as_file(files("taut") / "demo") as folder:
    trace = taut.read([folder])

graph = taut.link(trace)
observed = taut.replay(graph)
gap_free = taut.replay(graph, gaps=False)
blame = taut.blame(graph, observed, gap_free)

print(f"{len(trace.ops)} ops of {len(trace.members)} ranks, {len(graph.gates)} gates")
print(f"wall {observed.wall_ns / 1e6:.1f} ms, without gaps {gap_free.wall_ns / 1e6:.1f} ms")
for part in ("wait", "fault", "jitter", "structural", "gap", "unexplained"):
    print(f"  {part:<16} {getattr(blame.totals, f'{part}_ns') / 1e6:10.3f} rank-ms")
