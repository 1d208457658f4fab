"""Reading descriptors: from files and texts to values that were checked."""
