"""The protocols that toolcrib serves tools over. This room only translates.

It may import `scenarios` and the rooms below it; only `cli` imports it.
"""
