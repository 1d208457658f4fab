"""The protocols that toolcrib serves tools over: they translate, and nothing else.

This room may import `scenarios` and the rooms below it; of the rooms above it, `cli` starts it.
"""
