"""JSON Schema: validation, violations, coercion, defaults, merging, dereferencing, comparison and generation.

Imports only `security` and `core`.
"""
