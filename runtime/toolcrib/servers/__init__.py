"""Remote tool servers that toolcrib connects to: how they are reached, what they list, and what a lock has against them.

This room may import `expressions` and the rooms below it.
"""
