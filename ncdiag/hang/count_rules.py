"""Ranks compared by what they counted themselves: NCCL RAS and the PyTorch flight recorder."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ncdiag.hang import flight_recorder
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, numbers
from ncdiag.hang.scene import Scene, View
from ncdiag.model import Evidence

_LINES = 16
"""Ranks whose count is shown."""


def ras_says(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """NCCL's own view: ranks that do not answer, or, where all do, ranks that launched fewer collectives."""
    for report in scene.ras:
        for comm in report.get("communicators") or ():
            source = f"NCCL RAS, communicator {comm.get('hash', '?')}"
            for rank in comm.get("missing_ranks") or ():
                yield from _silent(scene, picture, rank, source)
            if not comm.get("missing_ranks") and not comm.get("moved", report.get("moved")):
                yield from _fewer_launched(scene, comm, source)
        for process in (*(report.get("dead") or ()), *(report.get("silent") or ())):
            yield from _silent(
                scene,
                picture,
                {**process, "status": {"considered_dead": process in (report.get("dead") or ())}},
                "NCCL RAS",
            )


def _silent(scene: Scene, picture: Picture, rank: Mapping[str, Any], source: str) -> Iterator[Claim]:
    """A process that does not answer RAS: stopped, dead, or cut off. What was seen of it here decides."""
    gone = bool((rank.get("status") or {}).get("considered_dead"))
    view = _view_of(scene, rank)
    if view is not None and view.verdict not in ("dead", "stopped"):
        return
    number = rank.get("rank")
    who = f"rank {number}" if number is not None else f"process {rank.get('pid')}"
    host = rank.get("host") or rank.get("node")
    text = f"{who} on {host} {'is considered dead' if gone else 'does not answer'}"
    looked = view is None and any(host in addresses for addresses in picture.known.values())
    tail = f", and its process {rank.get('pid')} is not there any more" if looked else ""
    yield claim(
        "rank-died" if gone or looked else "rank-stopped",
        LIKELY if looked else POSSIBLE,
        f"{text} to NCCL RAS{tail}",
        [Evidence(source, text)],
        culprits=[view] if view else [],
        absent=[number] if view is None and isinstance(number, int) else (),
        where=None if view else {"node": host, "rank": number},
    )


def _view_of(scene: Scene, rank: Mapping[str, Any]) -> Optional[View]:
    pid = rank.get("pid")
    return next(
        (
            view
            for view in scene.ranks
            if pid is not None
            and pid in (view.state.pid, view.state.ns_pid)
            and (None in (view.rank, rank.get("rank")) or view.rank == rank.get("rank"))
        ),
        None,
    )


def _fewer_launched(scene: Scene, comm: Mapping[str, Any], source: str) -> Iterator[Claim]:
    ranks = [
        rank
        for rank in comm.get("ranks") or ()
        if isinstance(rank.get("collective_counts"), Mapping) and isinstance(rank.get("rank"), int)
    ]
    for operation in sorted({name for rank in ranks for name in rank["collective_counts"]}):
        counts = {rank["rank"]: int(rank["collective_counts"].get(operation) or 0) for rank in ranks}
        if len(set(counts.values())) > 1:
            what = f"{operation} of a communicator of {comm.get('size') or len(counts)}"
            less = [rank for rank, count in counts.items() if count < max(counts.values())]
            yield _behind(scene, counts, less, what, [Evidence(source, f"{what}: {_words(counts)}")])
            return


def _behind(scene: Scene, counts: Mapping[int, int], less: Sequence[int], what: str, evidence: List[Evidence]) -> Claim:
    """Who counted less has not come to what the others are in; stuck elsewhere when its stack says so."""
    views = [view for view in scene.ranks if view.rank in less]
    outside = [view for view in views if view.verdict in ("stuck", "stopped", "dead")]
    named: List[View] = outside or (views if len(less) * 2 < len(counts) else [])
    few, most = min(counts[rank] for rank in less), max(counts.values())
    return claim(
        "rank-stuck-outside-collective" if outside else "collective-desync",
        LIKELY if len(counts) > 2 or outside else POSSIBLE,
        f"{numbers(sorted(less))} issued fewer {what} than the others ({few} against {most})",
        evidence,
        culprits=named,
        where=None if named else {"rank": min(less)},
    )


def _words(counts: Mapping[int, int]) -> str:
    by_count: Dict[int, List[int]] = {}
    for rank, count in sorted(counts.items()):
        by_count.setdefault(count, []).append(rank)
    return "; ".join(f"{numbers(ranks, _LINES)}: {count}" for count, ranks in sorted(by_count.items()))


def recorder_says(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """The flight recorder: in the same group, different collectives or numbers of them."""
    for group in flight_recorder.compare(scene.flight):
        if group.mismatch:
            views = [view for view in scene.ranks if view.rank in group.odd]
            yield claim(
                "collective-desync",
                LIKELY,
                f"in group {group.name}, {group.mismatch}",
                [Evidence("flight recorder", group.mismatch)],
                culprits=views,
                where=None if views else {},
            )
        elif group.behind:
            lines = [
                Evidence(
                    "flight recorder",
                    f"group {group.name}: rank {rank} at collective {number} ({group.operations[rank]})",
                )
                for rank, number in sorted(group.last.items())
            ]
            yield _behind(scene, group.last, group.behind, f"collectives of group {group.name}", lines[:_LINES])
