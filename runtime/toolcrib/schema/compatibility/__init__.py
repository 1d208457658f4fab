"""Whether one JSON Schema takes everything that another one takes."""
