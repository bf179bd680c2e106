"""Stands on a node during a bandwidth run: forks one process a rank, passes on what they say, ends them. Shipped as source (Python 3.8).

Orders come as one JSON object a line on standard input; answers go to standard output, one a line, each behind `MARK`. Its standard input is
its leash: when that ends, or nothing has come for LEASH_S, all ranks are killed and the agent ends. A rank that loses its agent is killed by
the kernel. So nothing is left behind, however the other side ends.

Orders: `{"do": "run", "job", "ranks": [{…}], "limit_s"}`, `{"do": "store", "job", "port"}`, `{"do": "kill", "job"}`, `{"do": "beat"}`.
Answers: `{"event": "hello", …facts}`, whatever a rank emits with `job` and `rank`, `{"event": "ended", "job", "rank", "status", "stage", "log"}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, Dict, List

from ncdiag.bandwidth.node.facts import facts, gpu_users
from ncdiag.bandwidth.node.network import addresses, hcas, link, own_address, way_to
from ncdiag.bandwidth.node.rank import Rank, say_ended
from ncdiag.bandwidth.node.words import say

LEASH_S = 90.0


class Agent:
    def __init__(self) -> None:
        self.interfaces = addresses()
        self.ranks: List[Rank] = []
        self.held: Dict[str, Dict[str, Any]] = {}
        """Jobs whose store is not known yet."""
        self.heard = time.monotonic()
        self.partial = b""

    def hello(self) -> None:
        own = own_address(self.interfaces)
        links = {name: link(name) for name in self.interfaces}
        say(
            {
                "event": "hello",
                "hostname": socket.gethostname(),
                "interfaces": self.interfaces,
                "links": links,
                "hcas": hcas(),
                "address": own,
                **facts(),
                "gpus": gpu_users(),
            }
        )

    def order(self, order: Dict[str, Any]) -> None:
        if order["do"] == "run":
            self._start(order)
        elif order["do"] == "store" and order["job"] in self.held:
            held = self.held.pop(order["job"])
            for spec in held["ranks"]:
                spec["store"]["port"] = order["port"]
            self._fork(held)
        elif order["do"] == "kill":
            self.held.pop(order["job"], None)
            for rank in self.ranks:
                if rank.job == order["job"]:
                    rank.kill()

    def _start(self, order: Dict[str, Any]) -> None:
        for spec in order["ranks"]:
            interface = way_to(spec["store"]["host"], self.interfaces)
            if interface and "GLOO_SOCKET_IFNAME" not in {**os.environ, **spec["env"]}:
                spec["env"]["GLOO_SOCKET_IFNAME"] = interface
        first = [spec for spec in order["ranks"] if spec["rank"] == 0]
        others = [spec for spec in order["ranks"] if spec["rank"] != 0]
        if first:
            self._fork({**order, "ranks": first})
        if others:
            self.held[order["job"]] = {**order, "ranks": others}

    def _fork(self, order: Dict[str, Any]) -> None:
        for spec in order["ranks"]:
            try:
                self.ranks.append(Rank(order["job"], spec, float(order["limit_s"])))
            except OSError as error:
                about = {"job": order["job"], "rank": spec["rank"]}
                say({"event": "error", "text": "no process could be started: %s" % error, **about})
                say_ended(status=1, stage="starting", **about)

    def look(self) -> bool:
        """One turn; False when it is over."""
        wanted = {number: rank for rank in self.ranks for number in rank.descriptors()}
        ready = select.select([0, *wanted], [], [], 0.5)[0]
        for number in ready:
            if number != 0:
                wanted[number].read(number)
        if 0 in ready and not self._listen():
            return False
        now = time.monotonic()
        for rank in self.ranks:
            if now > rank.deadline and not rank.late:
                rank.late = True
                rank.kill()
        for rank in [rank for rank in self.ranks if not rank.descriptors()]:
            rank.finish()
            self.ranks.remove(rank)
        return now - self.heard < LEASH_S

    def _listen(self) -> bool:
        data = os.read(0, 1 << 20)
        if not data:
            return False
        self.heard = time.monotonic()
        *lines, self.partial = (self.partial + data).split(b"\n")
        for line in lines:
            if line.strip():
                self.order(json.loads(line))
        return True

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(rank.pid, 0)


def main() -> None:
    """Serves until the leash is gone."""
    import torch  # noqa: F401  loaded once, here; the ranks are forked with it, and CUDA is touched in them only

    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the word comes over standard input

    def end(*_: Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    agent = Agent()
    try:
        agent.hello()
        while agent.look():
            pass
    except OSError:
        pass  # nobody listens any more
    finally:
        agent.close()
