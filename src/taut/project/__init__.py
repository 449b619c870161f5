"""Scenario → modelled job → forecast."""
