"""The simulated environment of a tool: stores, faults, latency.

This room imports `expressions` and the rooms below it.
"""
