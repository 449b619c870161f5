"""The same road on foot: read, link, replay, blame. Each noun is a value that can be looked at."""

from importlib.resources import as_file, files

import taut

with as_file(files("taut") / "demo") as folder:
    trace = taut.read([folder])

graph = taut.link(trace)
timeline = taut.replay(graph)
print(f"{len(trace.ops)} ops of {len(trace.members)} ranks")
print(taut.blame(graph, timeline))
