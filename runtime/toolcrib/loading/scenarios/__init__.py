"""Scenarios as documents write them."""
