"""Values, errors, protocols and clocks that all other packages use.

At run time, it imports no other package of toolcrib.
"""
