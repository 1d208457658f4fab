"""A warm start: what reading and linking came to, kept in the user's cache folder until anything changes.

An index is only ever a shortcut: what is absent, harmed, out of date or can't be followed is read anew, and nothing
that goes wrong with the index is an error.
"""

from toolcrib.index.recalling import Index, default_index, key_of, profiles_of
from toolcrib.index.stocks import Profiles, Recalled

__all__ = ["Index", "Profiles", "Recalled", "default_index", "key_of", "profiles_of"]
