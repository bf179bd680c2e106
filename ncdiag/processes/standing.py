"""Where a process stands: the system call that its main thread sleeps in with what it waits at, and for how long it has been there."""

from __future__ import annotations

import time
from typing import Any, Dict, Sequence, Set

from ncdiag.host import Host
from ncdiag.model import RankState
from ncdiag.processes import calls, pipes, pulse, sockets
from ncdiag.processes.look import Look
from ncdiag.stages.threads import frames_of, is_user

STREAMS = ("standard input", "standard output", "standard error")


def tell_call(host: Host, look: Look, tables: sockets.Tables) -> None:
    """Fills `RankState.call` at the end of a look; it holds what `calls.read` gave at the beginning."""
    state = look.state
    state.call = call = _now(host, look)
    descriptors = call.pop("descriptors", ())
    if call.get("name") in ("read", "pread64") and descriptors:
        call["source"] = _named(pipes.source(host, state.pid, descriptors[0]), descriptors[0])
    if call.get("name") == "write" and descriptors:
        call["sink"] = _named(pipes.reader(host, state.pid, descriptors[0]), descriptors[0])
    tell_asks(host, state.pid, call, descriptors)
    at = sockets.of(host, state.pid, descriptors, tables) if descriptors else []
    if any(socket.state == "LISTEN" for socket in at):
        call["listens"] = [socket.local for socket in at if socket.state == "LISTEN"]
    if any(socket.state != "LISTEN" for socket in at):
        call["hears"] = [[socket.local, socket.remote] for socket in at if socket.state != "LISTEN"]


def tell_asks(host: Host, pid: int, call: Dict[str, Any], descriptors: Sequence[int]) -> None:
    """Fills `asks` of a call: the name servers of whose answers it waits, as the resolver of the C library does."""
    if call.get("name") in ("poll", "ppoll") and 0 < len(descriptors) <= 2:
        servers = sockets.name_servers(host, pid, descriptors)
        if servers:
            call["asks"] = servers


def _named(end: Dict[str, Any], descriptor: int) -> Dict[str, Any]:
    """With `stream`, where it is one of the three that every program has."""
    return {**end, "stream": STREAMS[descriptor]} if end and descriptor < len(STREAMS) else end


def tell_heard(state: RankState) -> None:
    """Fills `Progress.heard_bytes`: what went over the connections that its main thread waits at."""
    ends = state.call.get("hears") or ()
    if state.progress is not None:
        state.progress.heard_bytes = sum(
            socket.bytes or 0 for socket in state.sockets if [socket.local, socket.remote] in ends
        )


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


def own_threads(look: Look) -> Set[int]:
    """Its main thread, and those that are in code of the program; empty before its stacks were read."""
    threads = look.first.threads
    return {thread["tid"] for thread in threads if thread["main"] or any(map(is_user, frames_of(thread)))}


def tell_still(host: Host, look: Look) -> None:
    """Fills `RankState.still_s` and `asleep_s` at the end of the window: for how long neither its main thread nor one in code of the program has run."""
    state, own = look.state, own_threads(look)
    turns = pulse.turns(host, state.pid)
    rested, still = pulse.slept(look.turns, turns), pulse.still_s(host, state.pid, turns.keys() & own)
    if own and rested.issuperset(own):
        state.asleep_s = round(time.monotonic() - look.at, 1)
        if look.paused:  # that was our doing
            still = {tid: seconds for tid, seconds in look.still_s.items() if tid in own}
    state.still_s = min(still.values()) if own and len(still) == len(own) else None
