"""The index of a warm start: a loaded project, kept in the user's cache folder until anything that it came from changes.

The index is only a cache: a missing, damaged or stale one is ignored silently, and the documents are read again. It holds
data alone (JSON), authenticated with a key of the user.
"""
