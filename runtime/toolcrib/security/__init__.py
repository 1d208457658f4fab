"""Controls what tools may reach and what may be shown: egress, secrets, redaction, workspace trust, tool policies.

It imports `core` only.
"""
