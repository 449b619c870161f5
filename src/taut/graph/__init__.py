"""Trace → Graph: clocks, gate matching, edges, roles."""

from taut.graph.arrays import Clock, Gate, Graph
from taut.graph.link import link

__all__ = ["Clock", "Gate", "Graph", "link"]
