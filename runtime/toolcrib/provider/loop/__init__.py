"""The parts of a turn: offer tools, check calls against the policy, make them, and record events."""
