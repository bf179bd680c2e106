"""One hang dump of this machine: processes, NCCL RAS and flight recorder together, within one budget."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ncdiag import __version__
from ncdiag.hang import flight_recorder
from ncdiag.hang.content import DumpContent
from ncdiag.host import Host
from ncdiag.model import RankState
from ncdiag.nccl import ras
from ncdiag.processes import zombies
from ncdiag.processes.look import Options
from ncdiag.processes.sample import Sampler

RECORDER_WAIT_S = 8.0
"""How long a process may take to write the dump that it was asked for: it looks at its pipe once a second, and torch 2.11 imports half of itself
before it writes the first one, 5 s on a quick machine."""


@dataclass(frozen=True)
class Request:
    """What to look at, and how; the fields of `sample.Options` besides."""

    pids: Sequence[int]
    window_s: float = 3.0
    budget_s: float = 30.0
    native: str = "auto"
    nonblocking: bool = False
    variables: bool = False
    ask_recorder: bool = False
    no_ras: bool = False


def dump(request: Request, host: Host | None = None) -> DumpContent:
    """Looks at the engine that the pids belong to. Raises FamilyError when a pid is no process here."""
    host, started = host or Host(), time.monotonic()
    sampler = Sampler(
        host,
        request.pids,
        Options(request.window_s, request.native, request.nonblocking, request.variables, request.budget_s),
    )
    sampler.begin()
    content = DumpContent(
        meta={
            "version": __version__,
            "node": host.node,
            "pids": list(request.pids),
            "asked": [
                _looked_at(host, text, sampler.states) for pid in request.pids if (text := zombies.about(host, pid))
            ],
            "created": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }
    )
    with ThreadPoolExecutor(4) as pool:
        services = {} if request.no_ras else ras_services(sampler.states)
        first = {address: pool.submit(ras.ask, address[1], netns=netns) for address, netns in services.items()}
        taken = sampler.finish()
        _second_reports(services, first, content)
    content.states = taken.states
    content.logs = {name: log.tail for name, log in taken.logs.items()}
    content.notes[:0] = taken.notes
    content.flight = recorders(taken.states, content.notes)
    if (
        request.ask_recorder
    ):  # last: a process that writes its dump imports, allocates and computes, which is no progress
        asked = _ask_recorders(taken.states, content)
        content.flight.update(_answers(asked, content.notes))
    content.meta["took_s"] = round(time.monotonic() - started, 2)
    return content


def _looked_at(host: Host, text: str, states: Sequence[RankState]) -> str:
    """`text`, and whom the rest of the dump is about: its parent, or the engine that it was a part of."""
    alive = [state.pid for state in states if zombies.about(host, state.pid) is None]
    if not alive:
        return f"{text}. Nothing else of it runs"
    return f"{text}. What follows is about " + (
        f"process {alive[0]}" if len(alive) == 1 else f"the {len(alive)} processes of its engine that still run"
    )


def ras_services(states: Sequence[RankState]) -> dict[tuple[str, str], str]:
    """(network namespace, address) -> file of that namespace, of every RAS service that one of the processes listens on."""
    found: dict[tuple[str, str], str] = {}
    for state in states:
        address = state.settings.get("NCCL_RAS_ADDR") or ras.DEFAULT_ADDRESS
        try:
            _, port = ras.split_address(address)
        except ras.RasError:
            continue
        if any(socket.state == "LISTEN" and socket.local.endswith(f":{port}") for socket in state.sockets):
            found.setdefault((state.netns, address), f"/proc/{state.pid}/ns/net")
    return found


def _second_reports(
    services: dict[tuple[str, str], str], first: dict[tuple[str, str], Future[dict[str, Any]]], content: DumpContent
) -> None:
    """Asks once more after the window: counts that moved between two reports are those of a job that works."""
    for key, pending in first.items():
        try:
            before = pending.result()
            after = ras.ask(key[1], netns=services[key])
        except ras.RasError as error:
            content.notes.append(f"NCCL RAS did not answer: {error}")
            continue
        after["moved"] = ras.moved(before, after)
        content.ras.append(after)


def _ask_recorders(states: Sequence[RankState], content: DumpContent) -> list[RankState]:
    """Those that were asked."""
    asked = []
    for state in states:
        if state.rank is None or state.role in ("api-server", "engine-core", "launcher", "headless"):
            continue
        refused = flight_recorder.request(state.settings, state.rank, f"/proc/{state.pid}/root")
        if refused:
            content.notes.append(refused)
        elif state.state[:1] not in ("T", "Z", "t"):
            asked.append(state)
    return asked


def _answers(asked: list[RankState], notes: list[str]) -> dict[int, dict[str, Any]]:
    """The dumps that were written since, as far as they come within the time."""
    since, end = time.time() - 1, time.monotonic() + RECORDER_WAIT_S
    dumps: dict[int, dict[str, Any]] = {}
    while asked and time.monotonic() < end:
        time.sleep(0.2)
        dumps.update(_written(asked, since))
        asked = [state for state in asked if state.rank not in dumps]
    notes.extend(
        f"the flight recorder of rank {state.rank} wrote nothing within {RECORDER_WAIT_S:g} s" for state in asked
    )
    return dumps


def _written(states: Sequence[RankState], since: float) -> dict[int, dict[str, Any]]:
    """Whole dumps that are there; one that is being written is not whole yet."""
    dumps = {}
    for state in states:
        path = flight_recorder.find(state.settings, state.rank or 0, f"/proc/{state.pid}/root", since=since)
        with contextlib.suppress(flight_recorder.DumpError):
            if path is not None and state.rank is not None:
                dumps[state.rank] = flight_recorder.read(path)
    return dumps


def recorders(states: Sequence[RankState], notes: list[str]) -> dict[int, dict[str, Any]]:
    """Global rank -> dump, of every rank that left one since it started."""
    dumps: dict[int, dict[str, Any]] = {}
    for state in states:
        if state.rank is None:
            continue
        path = flight_recorder.find(
            state.settings, state.rank, f"/proc/{state.pid}/root", since=time.time() - (state.age_s or 0) - 1
        )
        if path is None:
            continue
        try:
            dumps[state.rank] = flight_recorder.read(path)
        except flight_recorder.DumpError as error:
            notes.append(f"flight-recorder dump of rank {state.rank}: {error}")
    return dumps
