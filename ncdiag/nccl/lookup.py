"""Name look-ups with a limit: the resolver alone may wait half a minute for a server that is away. Travels to nodes."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Dict

LIMIT_S = 2.0
"""Longest that a name look-up is waited for. The resolver itself waits 5 s for each server, twice (resolv.conf(5))."""


def look_up(name: str) -> Dict[str, Any]:
    """`addresses` in getaddrinfo's order or None, `error` in the resolver's words, `failed` (`""`, `unknown-name`, `no-answer`), `took_s`."""
    answer: Dict[str, Any] = {}

    def ask() -> None:
        try:
            told = socket.getaddrinfo(name, None, socket.AF_UNSPEC, socket.SOCK_STREAM)
            answer.update(addresses=list(dict.fromkeys(str(entry[4][0]) for entry in told)), error=None, failed="")
        except socket.gaierror as error:
            away = error.errno in (socket.EAI_AGAIN, socket.EAI_FAIL)
            answer.update(addresses=None, error=str(error), failed="no-answer" if away else "unknown-name")
        except (OSError, UnicodeError) as error:
            answer.update(addresses=None, error=str(error), failed="unknown-name")

    begun = time.monotonic()
    asking = threading.Thread(target=ask, name="look-up", daemon=True)
    asking.start()
    asking.join(LIMIT_S)
    took = round(time.monotonic() - begun, 4)
    if asking.is_alive():
        return {"addresses": None, "error": "no answer within %g s" % LIMIT_S, "failed": "no-answer", "took_s": took}
    return {**answer, "took_s": took}
