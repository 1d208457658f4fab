"""From bytes to documents: YAML, JSON, archives."""
