"""What should be alike on the ranks of a start: the rendez-vous, the checkpoint, how far it is loaded."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line, speaker
from ncdiag.nodeset import ranks

INIT = re.compile(
    r"world_size=(?P<world>\d+) rank=(?P<rank>\d+) local_rank=(?P<local>\d+) distributed_init_method=(?P<url>\S+)"
)
CHECKPOINT = re.compile(r"Checkpoint size: (?P<size>\d+(?:\.\d+)?) GiB")


class Alike:
    """What the ranks of a start were told and what they have loaded: it should be the same, or soon be so."""

    def __init__(self) -> None:
        self._methods: dict[int, tuple[str, Line]] = {}
        self._loaded: dict[int, Line] = {}
        self._seen: dict[int, Line] = {}
        self._checkpoints: dict[str, Line] = {}

    def take(self, line: Line) -> None:
        rank = speaker(line.shown).get("rank")
        if isinstance(rank, int):
            (
                self._loaded if "Load weight end" in line.text or "Loading weights took" in line.text else self._seen
            ).setdefault(rank, line)
        checkpoint = CHECKPOINT.search(line.text)
        if checkpoint:
            self._checkpoints.setdefault(checkpoint["size"], line)
        init = INIT.search(line.text)
        if init:
            self._methods.setdefault(int(init["rank"]), (init["url"], line))

    def addresses(self) -> Iterator[Signal]:
        """Ranks that were told different rendez-vous addresses."""
        urls: dict[str, Line] = {}
        for url, line in self._methods.values():
            if url.startswith("tcp://"):
                urls.setdefault(url, line)
        hosts = {url[6:].rpartition(":")[0] for url in urls}
        ports = {url.rpartition(":")[2] for url in urls}
        if len(hosts) == 1 and len(ports) > 1 and len({line.source for line in urls.values()}) > 1:
            yield Signal(
                "bootstrap-peer-unreachable",
                Says.STRONG,
                "the ranks are told different ports of the rendez-vous: " + ", ".join(sorted(urls)),
                [line.evidence() for line in urls.values()],
                order=min(line.order for line in urls.values()),
                remedy="the same --master-port on all nodes",
            )
        if len(hosts) > 1:
            yield Signal(
                "node-ip-wrong-interface",
                Says.STRONG,
                "the ranks are told different rendez-vous addresses: " + ", ".join(sorted(urls)),
                [line.evidence() for line in urls.values()],
                order=min(line.order for line in urls.values()),
                remedy="the same --master-addr on all nodes: the address of node 0 that all of them reach",
            )

    def checkpoints(self) -> Iterator[Signal]:
        """Nodes that load checkpoints of different sizes."""
        if len(self._checkpoints) > 1 and len({line.source for line in self._checkpoints.values()}) > 1:
            yield Signal(
                "model-path-missing",
                Says.STRONG,
                "the nodes load different models: checkpoint sizes " + " and ".join(sorted(self._checkpoints)) + " GiB",
                [line.evidence() for line in self._checkpoints.values()],
                order=min(line.order for line in self._checkpoints.values()),
                remedy="put the same files at the same path on all nodes",
            )

    def late(self) -> Iterator[Signal]:
        """Ranks that have not loaded yet what others have."""
        late = sorted(set(self._seen) - set(self._loaded))
        if self._loaded and late:
            some = [self._seen[late[0]], next(iter(self._loaded.values()))]
            yield Signal(
                "slow-load-peer-timeout",
                Says.HINT,
                f"{_named(self._loaded)} loaded the weights, {_named(late)} not yet: the first ones wait for the others",
                [line.evidence() for line in some],
                {"rank": ranks(late)},
                condition=True,
                order=some[0].order,
            )


def _named(numbers: Collection[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {ranks(numbers)}"
