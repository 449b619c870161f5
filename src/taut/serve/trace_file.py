"""A Perfetto trace as a download: written to a file without a name, and sent from there, so that memory holds pieces only."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from taut.serve.guard import PIECE
from taut.serve.opened import OpenRun, OpenRuns

if TYPE_CHECKING:
    from starlette.responses import Response

KIND = "application/octet-stream"


async def trace_response(runs: OpenRuns, name: str) -> Response:
    """The trace of a run."""
    from starlette.responses import StreamingResponse

    out = await runs.ask(name, _written)
    size = out.seek(0, 2)
    out.seek(0)
    headers = {"content-disposition": f'attachment; filename="{name}.pftrace"', "content-length": str(size)}
    return StreamingResponse(_pieces(out), media_type=KIND, headers=headers)


def _written(of: OpenRun) -> IO[bytes]:
    from taut.export import perfetto

    out = tempfile.TemporaryFile()  # noqa: SIM115 (closed by whoever sends it)
    try:
        perfetto(of.run.graph, of.run.waits, of.run.result.findings, out)
    except BaseException:
        out.close()
        raise
    return out


def _pieces(out: IO[bytes]) -> Iterator[bytes]:
    with out:
        while piece := out.read(PIECE):
            yield piece
