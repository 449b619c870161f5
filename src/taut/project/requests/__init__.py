"""Requests through queues: serving and agents."""
