"""What the protocols that we serve have in common: an HTTP server behind a guard, its start and end, and what clients are told.

The protocols do not know each other; each of them may import this package, which knows none of them.
"""
