"""Documents: texts and archives, read under bounds and with the positions of their parts."""
