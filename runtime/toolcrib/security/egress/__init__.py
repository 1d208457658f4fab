"""The egress guard: which hosts and addresses tools may reach, and the one place where a socket is dialled.

A name is looked up once for each connection. Every address that the look-up gives must be good, and what was judged is
what is dialled: a name that answers differently a moment later changes nothing. Literal addresses, in whatever
spelling, are judged without a look-up. What is not public is refused unless the project's `egress.allow` names it.
"""

from toolcrib.security.egress.guard import EgressRefused, Guard, Resolved
from toolcrib.security.egress.hosts import Host, is_loopback, read_allowed, read_glob, read_host
from toolcrib.security.egress.ip_ranges import fault_of, is_metadata
from toolcrib.security.egress.sockets import Dial, Resolve, Unreachable

__all__ = [
    "Dial",
    "EgressRefused",
    "Guard",
    "Host",
    "Resolve",
    "Resolved",
    "Unreachable",
    "fault_of",
    "is_loopback",
    "is_metadata",
    "read_allowed",
    "read_glob",
    "read_host",
]
