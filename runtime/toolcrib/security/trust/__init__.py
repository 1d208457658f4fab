"""Workspace trust: files alone start no program, contact no host and read no secret.

A workspace is what is trusted together: a project, or a pack or folder outside of it. What its files need is known
before anything happens (`needs`), somebody agrees to exactly that (`decisions`), and everything that starts, contacts or
looks up asks one function first (`check.Trust.check`).
"""
