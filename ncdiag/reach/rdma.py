"""The agent's part of testing RDMA between two nodes: the process with the ends, and what the two sides tell each other. Travels to nodes.

The sides talk over the connection that the agent answers on its address with the run's token; no other port is opened. The node with
the lower number asks, and reports for both directions.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Optional, Tuple

import ncdiag
from ncdiag.reach import lanes

MAX_LANES = 16
START_S = 8.0
"""For the interpreter and the drivers to come up."""

STEP_S = 2.2
"""One step of the ends: longer than resolving an address (1 s) and than lanes.SEND_S."""

Test = List[Any]
"""what, outcome, detail; as the agent reports them."""


class Broken(Exception):
    """The test could not be done; the text says why."""


class Ends:
    """The process that holds this node's ends; started when it is first wanted, and again when it has died or was ended as too slow.

    `start`, `ask` and `stop` are for who has it `held`: its answers come one after the other, without a name.
    """

    def __init__(self) -> None:
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._lock = threading.Lock()
        self._over = False

    @contextmanager
    def held(self, limit_s: float) -> Iterator[None]:
        """For one pair, or for the start. Raises Broken when another still has it after `limit_s`."""
        if not self._lock.acquire(timeout=limit_s):
            raise Broken("still starting, or busy with the pair before")
        try:
            yield
        finally:
            self._lock.release()

    def end(self) -> None:
        """For good, from any thread: whoever has it held gets Broken."""
        self._over = True
        process = self._process
        if process is not None:
            process.kill()
        try:
            with self.held(STEP_S):
                self.stop()
        except Broken:  # its holder waits for the other side; the process is killed
            return

    def start(self) -> None:
        """Raises Broken."""
        if self._over:
            raise Broken("the test is over")
        if self._process is not None and self._process.poll() is None:
            return
        root = os.path.dirname(os.path.dirname(os.path.abspath(ncdiag.__file__)))
        program = "import sys; sys.path.insert(0, %r); from %s import main; main()" % (root, lanes.__name__)
        keep = [int(root.rpartition("/")[2])] if root.startswith("/proc/self/fd/") else []
        self._process = subprocess.Popen([sys.executable, "-S", "-I", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, pass_fds=keep)  # fmt: skip
        told = self._read(START_S)
        if told["why"]:
            raise Broken(told["why"])

    def ask(self, name: str, argument: Any) -> Any:
        """Raises Broken."""
        self.start()
        try:
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(json.dumps([name, argument]).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Broken("its process ended: %s" % error) from error
        return self._read(STEP_S)

    def _read(self, limit_s: float) -> Any:
        assert self._process is not None and self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], limit_s)[0]
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.stop()
            why = "status %s" % self._process.returncode if ready else "no answer in %g s" % limit_s
            raise Broken("the process that calls libibverbs ended: %s" % why)
        return json.loads(line)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def lanes_of(own: List[Dict[str, Any]], peer: List[Dict[str, Any]]) -> List[Tuple[Dict[str, Any], Dict[str, Any]]]:
    """The first port with the first, and so on, as rails are built; the side with fewer takes its own again."""
    if not own or not peer:
        return []
    count = min(MAX_LANES, max(len(own), len(peer)))
    return [(own[index % len(own)], peer[index % len(peer)]) for index in range(count)]


class Line:
    """Lines of JSON over a connection. Raises Broken when it ends or nothing comes."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._left = b""

    def put(self, told: Any) -> None:
        try:
            self._connection.sendall(json.dumps(told).encode() + b"\n")
        except OSError as error:
            raise Broken("the other side ended: %s" % error) from error

    def take(self) -> Any:
        end = time.monotonic() + START_S
        while b"\n" not in self._left:
            try:
                self._connection.settimeout(max(0.1, end - time.monotonic()))
                part = self._connection.recv(1 << 16)
            except OSError as error:
                raise Broken("the other side is silent: %s" % error) from error
            if not part:
                raise Broken("the other side ended")
            self._left += part
        line, _, self._left = self._left.partition(b"\n")
        told = json.loads(line)
        if "broken" in told:
            raise Broken(told["broken"])
        return told


def answer(ends: Ends, connection: Any, pairs: List[Any]) -> None:
    """The side that was asked. `pairs`: `lanes_of` from its point of view."""
    line = Line(connection)
    try:
        with ends.held(STEP_S):
            theirs = line.take()["open"]
            own = ends.ask("open", [port for port, _ in pairs])
            line.put({"open": own})
            failed = ends.ask("connect", _both(own, theirs))
            line.put({"connect": failed})
            wanted = line.take()["send"]
            line.put({"send": ends.ask("send", wanted)})
    except Broken as error:
        with suppress(Broken):  # it has ended too
            line.put({"broken": "%s there" % error})


def test(ends: Ends, connection: Any, pairs: List[Any]) -> List[Test]:
    """The side that asks: a test `rdma N` for each lane, and `rdma N back` for what the other side sent."""
    line = Line(connection)
    try:
        with ends.held(STEP_S):
            own = ends.ask("open", [port for port, _ in pairs])
            line.put({"open": own})
            theirs = line.take()["open"]
            refused = (ends.ask("connect", _both(own, theirs)), line.take()["connect"])
            wanted = [
                not any("why" in side[index] for side in (own, theirs)) and not any(side[index] for side in refused)
                for index in range(len(pairs))
            ]
            line.put({"send": wanted})
            sent = ends.ask("send", wanted)
            back = line.take()["send"]
    except Broken as error:
        return [["rdma", "none", str(error)]]
    told: List[Test] = []
    for index in range(len(pairs)):
        told += _lane(
            index, (own[index], theirs[index]), (refused[0][index], refused[1][index]), (sent[index], back[index])
        )
    return told


def _both(own: List[Any], theirs: List[Any]) -> List[Any]:
    """The other end of each lane; None where one of the two could not be made."""
    return [None if "why" in own[index] or "why" in end else end for index, end in enumerate(theirs)]


def _lane(index: int, ends: Tuple[Any, Any], refused: Tuple[Any, Any], sent: Tuple[Any, Any]) -> List[Test]:
    """Each of the tuples: this side, then the other."""
    names = ["rdma %d" % index, "rdma %d back" % index]
    for side in (0, 1):
        if "why" in ends[side]:
            return [[names[0], "none", {"side": side, "why": ends[side]["why"], "code": ends[side]["code"]}]]
    if any(refused):
        sides = {str(side): refused[side] for side in (0, 1) if refused[side]}
        return [[name, "setup", sides] for name in names]
    return [[names[side], _outcome(sent[side], sent[1 - side]), sent[side]["status"]] for side in (0, 1)]


def _outcome(sent: Dict[str, Any], received: Dict[str, Any]) -> str:
    """By what came, not by what was acknowledged: a lost acknowledgement is a fault of the way back."""
    if received["received"] >= len(lanes.SIZES):
        return "ok"
    return "stuck" if received["received"] else "dropped"
