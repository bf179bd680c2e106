"""Where a process stands: the system call that its main thread sleeps in with what it waits at, and for how long it has been there."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ncdiag.host import Host
from ncdiag.processes import calls, pipes, sockets
from ncdiag.processes.look import Look
from ncdiag.stages.threads import frames_of, is_user


def tell_call(host: Host, look: Look, tables: sockets.Tables) -> None:
    """Fills `RankState.call` at the end of a look; it holds what `calls.read` gave at the beginning."""
    state = look.state
    state.call = call = _now(host, look)
    descriptors = call.pop("descriptors", ())
    if call.get("name") == "read" and descriptors:
        call["source"] = pipes.source(host, state.pid, descriptors[0])
    if call.get("name") == "write" and descriptors:
        call["sink"] = pipes.reader(host, state.pid, descriptors[0])
    at = sockets.of(host, state.pid, descriptors, tables) if descriptors else []
    if any(socket.state == "LISTEN" for socket in at):
        call["listens"] = [socket.local for socket in at if socket.state == "LISTEN"]
    if any(socket.state != "LISTEN" for socket in at):
        call["hears"] = [[socket.local, socket.remote] for socket in at if socket.state != "LISTEN"]


def _now(host: Host, look: Look) -> Dict[str, Any]:
    """The call that it is in; where a read of its stack woke it just now, or restarted the call, that of the beginning."""
    state, now, first = look.state, calls.read(host, look.state.pid), look.state.call
    if now and now["name"] != calls.RESTARTED:
        return now
    if not now and (state.progress is None or state.progress.frames_changed is not False):
        return {}
    if first.get("left_s"):
        first["left_s"] = max(first["left_s"] - (state.progress.window_s if state.progress else 0.0), 0.0)
    return first


def still_s(look: Look) -> Optional[float]:
    """For how long neither its main thread nor one in code of the program has run; None where that is not known of all of them."""
    own = [thread for thread in look.state.threads if thread["main"] or any(map(is_user, frames_of(thread)))]
    known = [look.still_s.get(thread["tid"]) for thread in own]
    return min((seconds for seconds in known if seconds is not None), default=None) if None not in known else None
