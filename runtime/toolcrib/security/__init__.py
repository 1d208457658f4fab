"""Who may reach what, and what may be shown: egress, secrets, redaction, workspace trust, tool policies.

It imports `core` only.
"""
