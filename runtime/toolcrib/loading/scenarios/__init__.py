"""Scenarios as documents write them: read, checked against the tools that are there, and compiled (`model`)."""
