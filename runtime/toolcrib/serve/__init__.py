"""Faces that other programs speak to: each translates a protocol to the runtime, and decides nothing."""
