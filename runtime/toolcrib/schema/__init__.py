"""JSON Schema: validates, explains, coerces, fills in defaults, merges, dereferences, compares and generates.

It imports `security` and `core` only.
"""
