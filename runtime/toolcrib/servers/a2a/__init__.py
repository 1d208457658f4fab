"""A2A agents whose tools we call: their cards, their connections, and the messages of calls."""
