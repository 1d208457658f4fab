"""Finds what a model will misread in tools: the rules, comments that silence them, corrections, and SARIF.

It imports formats, loading, and the rooms below them.
"""
