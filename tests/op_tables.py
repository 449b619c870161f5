"""A small job as a table of ops: read and analysed in a tenth of the time of the demo."""

from __future__ import annotations


def op_table(slow_ms: float = 40, name: str = "forward", ranks: int = 4, steps: int = 8) -> str:
    """Computes of 10 ms and a collective of 1 ms; the last rank is slower by ``slow_ms``."""
    lines = ["rank,step,class,start_ms,duration_ms"]
    for step in range(steps):
        opens = step * 100 + 10.0 + slow_ms
        for rank in range(ranks):
            # Peers that agree to the nanosecond have no spread to be judged by.
            took = 10.0 + 0.01 * ((rank * 7 + step * 3) % 5) + (slow_ms - 0.1 if rank == ranks - 1 else 0.0)
            lines.append(f"{rank},{step},{name},{step * 100}.0,{took:.3f}")
            lines.append(f"{rank},{step},all-reduce,{step * 100 + took:.3f},{opens + 1 - step * 100 - took:.3f}")
    return "\n".join(lines) + "\n"
