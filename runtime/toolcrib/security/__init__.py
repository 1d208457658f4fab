"""Who may reach what, and what may be shown."""
