"""Values, errors, contracts and time, used by all other rooms.

It imports no other room.
"""
