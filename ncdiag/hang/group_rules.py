"""Ranks compared with each other: different collectives, different places, NCCL RAS, the flight recorder."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ncdiag import stages
from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, names, numbers, seen
from ncdiag.hang.flight_recorder import GroupReport, compare
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.stages.order import LOOSE, PEERS
from ncdiag.stages.threads import frames_of, is_user, main_thread

_INTERNAL = ("torch/", "vllm/distributed/", "<frozen", "threading.py", "contextlib.py")


def call_site(view: View) -> Optional[Tuple[str, str]]:
    """The collective, and the line that calls it: `("all_reduce", "train.py:41")`. None where no frame of the caller is
    known."""
    main = main_thread(view.state.threads)
    if main is None:
        return None
    stack = frames_of(main)
    caller = next((frame for frame in stack if is_user(frame)), None) or next(
        (frame for frame in stack if not frame.native and frame.file and not any(p in frame.file for p in _INTERNAL)), None)
    if caller is None:
        return None
    return view.match.detail or view.stage, f"{caller.file}:{caller.line}"


def different_calls(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """All ranks wait for peers, but in different collectives or at different lines: they are out of step."""
    waiting = [view for view in scene.ranks if view.witness and view.waiting in (PEERS, "gpu")]
    if len(waiting) < 2 or len(waiting) < len(scene.ranks) or any(view.stage in ("mesh", "rendezvous") for view in waiting):
        return
    places: Dict[Tuple[str, Tuple[str, str]], List[View]] = {}
    for view in waiting:
        site = call_site(view)
        if site is None:
            return
        places.setdefault((view.stage, site), []).append(view)
    if len(places) < 2 or len({stage for stage, _ in places}) > 1:
        return
    evidence = [Evidence(f"stack of {views[0].name}", f"{op} called at {line}") for (_, (op, line)), views in
                sorted(places.items(), key=lambda item: item[0])]
    text = "; ".join(f"{names(views)} in {op} ({line})" for (_, (op, line)), views in
                     sorted(places.items(), key=lambda item: item[0]))
    odd = _minority(list(places.values()))
    yield claim("collective-desync", LIKELY if len(waiting) > 2 else POSSIBLE,
                ("these two differ: " if len(waiting) == 2 else "the ranks wait in different collectives: ") + text, evidence,
                culprits=odd, where=None if odd else {"stage": waiting[0].stage})


def _minority(groups: Sequence[List[View]]) -> List[View]:
    """The smaller groups when one group is more than half of all, else nobody."""
    total, largest = sum(len(group) for group in groups), max(groups, key=len)
    if len(largest) * 2 <= total:
        return []
    return [view for group in groups if group is not largest for view in group]


def behind(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """All ranks wait for others, but not at the same stage: who has the least progress is waited for."""
    comparable = [view for view in scene.ranks if view.witness and view.stage not in LOOSE]
    waiting = [view for view in comparable if view.stage not in ("ready", "ray-actor")]
    if not waiting or len(comparable) < len(scene.ranks):
        return
    last = min(stages.order(view.stage) for view in comparable)
    least = [view for view in comparable if stages.order(view.stage) == last]
    ahead = [view for view in scene.ranks if view not in least]
    if not ahead:
        return
    arrows = [Wait(other.name, view.name, f"in {other.stage}; the other is still in {view.stage}")
              for view in least for other in ahead]
    two = len(scene.ranks) == 2
    what = f"{names(least)} {stages.describe(least[0].stage)}, {names(ahead)} {stages.describe(ahead[0].stage)}"
    yield claim("unresolved", POSSIBLE, ("these two differ: " if two else "") + what, [seen(view) for view in least[:3]],
                culprits=[] if two or len(least) * 2 >= len(scene.ranks) else least,
                where={"stage": least[0].stage}, waits=arrows)


def ras_says(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """NCCL's own view: ranks that do not answer, and ranks that launched fewer collectives."""
    for report in scene.ras:
        for comm in report.get("communicators") or ():
            yield from _missing(scene, comm)
            if not report.get("moved"):      # counts that moved between two reports are those of a job that works
                yield from _behind(scene, comm)


def _missing(scene: Scene, comm: Mapping[str, Any]) -> Iterator[Claim]:
    for rank in comm.get("missing_ranks") or ():
        status = rank.get("status") or {}
        text = "is considered dead" if status.get("considered_dead") else "does not answer"
        view = _by_pid(scene, rank)
        evidence = [Evidence(f"NCCL RAS, communicator {comm.get('hash', '?')}", f"rank {rank.get('rank')} on "
                             f"{rank.get('host')} (pid {rank.get('pid')}) {text}")]
        slug = "rank-died" if status.get("considered_dead") else "rank-stopped"
        if view is not None and view.verdict not in ("dead", "stopped"):
            continue
        yield claim(slug, POSSIBLE, f"rank {rank.get('rank')} on {rank.get('host')} {text} to NCCL RAS", evidence,
                    culprits=[view] if view else [], where=None if view else
                    {"node": rank.get("host"), "rank": rank.get("rank")})


def _behind(scene: Scene, comm: Mapping[str, Any]) -> Iterator[Claim]:
    ranks = [rank for rank in comm.get("ranks") or () if isinstance(rank.get("collective_counts"), Mapping)]
    if len(ranks) < 2:
        return
    for operation in sorted({name for rank in ranks for name in rank["collective_counts"]}):
        counts = {int(rank["rank"]): int(rank["collective_counts"].get(operation, 0)) for rank in ranks}
        most = max(counts.values())
        less = sorted(rank for rank, count in counts.items() if count < most)
        if not less:
            continue
        late = [view for view in scene.ranks if view.rank in less]
        where = f"NCCL RAS, communicator {comm.get('hash', '?')}"
        evidence = [Evidence(where, f"{operation}: {numbers(less)} launched {min(counts.values())}, the others {most}")]
        outside = [view for view in late if not view.witness]
        slug = "rank-stuck-outside-collective" if outside else "collective-desync"
        named = outside or (late if len(less) * 2 < len(counts) else [])
        yield claim(slug, LIKELY if len(counts) > 2 or outside else POSSIBLE,
                    f"{numbers(less)} launched fewer {operation} than the others ({min(counts.values())} against {most})",
                    evidence, culprits=named, where=None if named else {"rank": less[0]})
        return


def _by_pid(scene: Scene, rank: Mapping[str, Any]) -> Optional[View]:
    pid = rank.get("pid")
    return next((view for view in scene.ranks if pid in (view.state.pid, view.state.ns_pid) and
                 (view.rank in (None, rank.get("rank")))), None)


def recorder_says(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """The flight recorder: the same group, different collectives or numbers of them."""
    for group in compare(scene.flight):
        if len(group.last) < 2:
            continue
        if group.mismatch:
            views = [view for view in scene.ranks if view.rank in group.odd]
            yield claim("collective-desync", LIKELY, f"the ranks of group {group.name} issue different collectives ({group.mismatch})",
                        [Evidence("flight recorder", f"group {group.name}: {group.mismatch}")], culprits=views,
                        where=None if views else {"rank": group.odd[0]} if group.odd else {})
        elif group.behind:
            yield _fewer(scene, group)


def _fewer(scene: Scene, group: GroupReport) -> Claim:
    late = [view for view in scene.ranks if view.rank in group.behind]
    outside = [view for view in late if not view.witness]
    named = outside or (late if len(group.behind) * 2 < len(group.last) else [])
    return claim("rank-stuck-outside-collective" if outside else "collective-desync", LIKELY if len(group.last) > 2 or outside else POSSIBLE,
                 f"{numbers(group.behind)} issued fewer collectives of group {group.name} than the others "
                 f"({min(group.last.values())} against {max(group.last.values())})",
                 [Evidence("flight recorder", f"group {group.name}: rank {rank} at collective {number} ({group.operations[rank]})")
                  for rank, number in sorted(group.last.items())], culprits=named, where=None if named else {"rank": group.behind[0]})
