"""What stands in for the world: stores, faults, latency.

It imports `expressions` and the rooms below it.
"""
