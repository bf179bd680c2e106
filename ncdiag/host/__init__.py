"""The one door to a machine: read a file, list a folder, run a command, ask the system. Travels to nodes.

`Host` is the live machine. `Recorded` is a Host over a captured tree. Both mask secrets at the door, so that no facts
can hold one. Everything a probe cannot have becomes a `HostError` with its reason; absent is never taken for empty.
"""

from ncdiag.host.answers import Output, Space, Stat, mask
from ncdiag.host.errors import Absent, HostError, TimedOut, TooLarge, Unreadable
from ncdiag.host.live import DEFAULT_LIMIT, Host
from ncdiag.host.recorded import Recorded

__all__ = [
    "DEFAULT_LIMIT",
    "Absent",
    "Host",
    "HostError",
    "Output",
    "Recorded",
    "Space",
    "Stat",
    "TimedOut",
    "TooLarge",
    "Unreadable",
    "mask",
]
