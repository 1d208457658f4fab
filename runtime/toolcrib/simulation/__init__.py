"""Simulated surroundings of a tool: stores, faults, latency.

It imports `expressions` and the rooms below it.
"""
