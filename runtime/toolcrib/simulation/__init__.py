"""What stands in for the world: stores, faults, latency."""
