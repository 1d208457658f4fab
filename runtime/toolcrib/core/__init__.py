"""Values, errors, contracts, time: what everything else uses.

It imports no other room.
"""
