"""Agents: tasks of many calls on a shared pool of model replicas."""
