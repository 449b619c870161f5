"""Trace → Graph: clocks, gate matching, edges, roles."""

from taut.graph.link import link
from taut.graph.model import Clock, Gate, Graph

__all__ = ["Clock", "Gate", "Graph", "link"]
