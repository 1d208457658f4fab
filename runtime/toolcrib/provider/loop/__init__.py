"""The parts of a turn: offer tools, judge calls, make them, and record what happens."""
