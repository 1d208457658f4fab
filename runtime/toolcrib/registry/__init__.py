"""Tools by name: immutable, searchable.

It imports `security` and `core` only.
"""
