"""Shared by all served protocols: an HTTP server behind a request guard, its lifecycle, and the failures that clients see.

The protocols do not know each other; each of them may import this package, which knows none of them.
"""
