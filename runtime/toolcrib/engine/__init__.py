"""A runtime, its sessions, and the layers of a call."""
