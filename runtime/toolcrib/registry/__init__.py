"""Tools by name: immutable, searchable."""
