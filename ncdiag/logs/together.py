"""What signals of several readers mean together: which doubt each other, which of two causes a third fact decides, and whether it worked in the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ncdiag.explain import Says, Signal
from ncdiag.logs import closer, structure
from ncdiag.logs.alive import harmless
from ncdiag.logs.documents import Documents
from ncdiag.logs.how_far import INITIALISED, healthy, proof
from ncdiag.logs.kinds import IDLE, NO_GPU
from ncdiag.logs.model import STANDING, Line, speaker
from ncdiag.logs.one_bridge import bridged
from ncdiag.logs.own_store import own_stores
from ncdiag.logs.readers import Readers
from ncdiag.logs.rules.ray import SEES_NONE
from ncdiag.logs.sockets import Row
from ncdiag.logs.trials import restarts, trials
from ncdiag.logs.vllm import ORDER, Starts
from ncdiag.logs.waiters import silent
from ncdiag.logs.weighed import weigh
from ncdiag.model import Evidence
from ncdiag.nccl.log_facts import NcclFacts

_FULL = ("kv-cache-no-memory", "gpu-memory-exhausted")
_TIME_LIMIT = re.compile(r"(?i)time ?limit|walltime|deadline")


def refine(
    found: Sequence[Signal],
    readers: Readers,
    documents: Documents,
    facts: NcclFacts,
    order: dict[str, float],
    ray: bool,
) -> list[Signal]:
    """All signals, those of single lines and those of what stands together. `order`: source -> position of its first line. `ray`: Ray is at work."""
    signals = _without_the_end(found, readers)
    _unlimited(signals, readers)
    _manager_runs(signals, readers)
    _same_device(signals, readers)
    _no_gpu(signals, ray)
    _no_driver(signals, readers, ray)
    _some_devices(signals, facts)
    _path_explained(signals)
    _switched_off(signals, readers)
    _ended_while_waiting(signals, readers)
    _limit_after_a_fault(signals)
    _head_reached(signals, readers)
    _dead_by_word(signals)
    weigh(signals, readers, facts)
    signals.extend(list(closer.look(signals, readers, facts, order)))
    signals.extend(
        [*_left_over(signals, readers), *_waited_for_load(signals, readers), *_waited_for_work(signals, readers)]
    )
    _silent_death(signals, readers, len(order.keys() - {line.source for line in readers.proofs()}))
    signals.extend(silent(readers.watchdog, facts))
    signals.extend(readers.placed.apart(facts))
    signals.extend(list(bridged(signals, facts)))
    signals.extend(own_stores(readers.own_store, facts, readers.proofs()))
    signals.extend(trials(readers.life, readers.works(), facts, order))
    ended = [signal.order for signal in signals if signal.says >= Says.STRONG and not signal.condition]
    signals.extend(restarts(readers.works(), readers.worked_first, facts, order, ended))
    signals.extend(_outcome(signals, readers, facts, order))
    if all(signal.says is Says.CASCADE and signal.condition for signal in signals):
        signals.extend(_fine(documents, readers))
    return closer.settled(signals)


def _without_the_end(signals: Sequence[Signal], readers: Readers) -> list[Signal]:
    """Without the noise of servers that had come up and were then told to end, and of what ran beside them."""
    ended = readers.starts.ended
    if not ended:
        return list(signals)

    def noise(signal: Signal) -> bool:
        source = signal.evidence[0].source if signal.evidence else ""
        program = signal.cause in ("engine-exception", "framework-version-bug")
        after = source in ended and signal.order > ended[source]
        if after and (program or signal.says <= Says.SYMPTOM or signal.cause == "rank-died"):
            return True
        aside = source not in readers.starts.sources and readers.starts.served is not None
        return (aside and program) or (source not in ended and signal.says is Says.CASCADE)

    return [signal for signal in signals if not noise(signal)]


def _unlimited(signals: Sequence[Signal], readers: Readers) -> None:
    """Locked memory is known to be unlimited: registering memory fails for another reason."""
    if readers.limits.unlimited is None:
        return
    for signal in signals:
        if signal.cause in ("memlock-limit", "rdma-memory-registration") and signal.says is not Says.NAMED:
            signal.says = Says.HINT if signal.cause == "memlock-limit" else Says.STRONG


def _manager_runs(signals: Sequence[Signal], readers: Readers) -> None:
    """Fabric Manager is known to run: what usually means that it does not has another reason."""
    if "nvidia-fabricmanager" not in readers.services.running:
        return
    for signal in signals:
        if signal.cause == "fabric-manager-not-running":
            signal.says = Says.HINT


_FLAP = re.compile(r"(?i)(?:mlx[45]_core|irdma|bnxt_re|ionic)\b.*(?:link down|cable (?:unplugged|error))")


def _same_device(signals: Sequence[Signal], readers: Readers) -> None:
    """A port that is not active, or of another MTU than its peer, on the very device whose packets are not acknowledged, or an RDMA adapter whose kernel driver saw its link go: that is what ends the job."""
    failing = {
        str(signal.where.get("device", "")).partition(":")[0]
        for signal in signals
        if signal.cause == "ib-path-unreachable" and not signal.condition
    } - {""}
    unacknowledged = any(signal.cause == "ib-path-unreachable" and not signal.condition for signal in signals)
    for signal in signals:
        at = signal.evidence[0] if signal.evidence else None
        if unacknowledged and at and signal.cause == "ib-link-or-hca-fault" and _FLAP.search(at.text):
            signal.condition = False
        device = readers.verbs.inactive.get((at.source, at.line or 0)) if at else None
        if signal.cause == "mtu-mismatch":
            device = str(signal.where.get("device", ""))
        if device in failing and signal.cause in ("ib-link-or-hca-fault", "mtu-mismatch"):
            signal.condition = False
            signal.where.setdefault("device", device)


def _no_gpu(signals: Sequence[Signal], ray: bool) -> None:
    """Under Ray a process without a GPU was mostly scheduled without one; HIP has another usual reason."""
    for signal in signals:
        if ray and signal.kind == NO_GPU and "HIP" not in signal.evidence[0].text:
            signal.cause, signal.candidates = "ray-driver-without-gpu", ("visible-devices-conflict", *signal.candidates)
            signal.remedy = (
                "give the Ray task or job num_gpus; else look at CUDA_VISIBLE_DEVICES and at --gpus of the container"
            )


_NO_DRIVER = re.compile(r"Failed to infer device type|No CUDA runtime is found|Found no NVIDIA driver on your system")


def _no_driver(signals: Sequence[Signal], readers: Readers, ray: bool) -> None:
    """Under Ray a process that finds no driver is mostly one that was placed without a GPU: it was given none, or the cluster has some elsewhere."""
    shown = [line for line in (readers.visible.none, readers.ray_status.gpus()) if line is not None]
    if not ray or not shown:
        return
    for signal in signals:
        if signal.cause == "driver-library-missing" and _NO_DRIVER.search(signal.evidence[0].text):
            signal.cause, signal.says = "ray-driver-without-gpu", Says.STRONG
            signal.candidates = ("driver-library-missing", "visible-devices-conflict")
            signal.summary = (
                f"{SEES_NONE}, although it runs under Ray: it was placed where there is none, or without one"
            )
            signal.evidence = [*signal.evidence, *[line.evidence() for line in shown]]
            signal.remedy = "start the program where a GPU is: `ray job submit --entrypoint-num-gpus 1`, or build the engine in a task or actor with num_gpus; then look at the driver of that node"


def _some_devices(signals: Sequence[Signal], facts: NcclFacts) -> None:
    """A node that uses some RDMA devices and cannot open others has them: it has fewer than the others. Drivers that are missing for other devices are noise there."""
    hosts = {process.host for process in facts.processes if process.net_devices and process.network != "Socket"}
    if hosts and not any(process.network == "Socket" for process in facts.processes):
        for signal in signals:
            if signal.cause == "rdma-unavailable" and "libibverbs: Warning" in signal.evidence[0].text:
                signal.cause, signal.says = "", Says.CASCADE
    if not any(event.kind == "ib-device-unusable" and event.host in hosts for event in facts.events):
        return
    for signal in signals:
        if signal.cause == "rdma-unavailable" and "ibv_open_device" in signal.evidence[0].text:
            signal.cause, signal.says, signal.candidates = (
                "hca-mismatch-between-nodes",
                Says.HINT,
                ("rdma-unavailable",),
            )


def _path_explained(signals: Sequence[Signal]) -> None:
    """RDMA fails on the way, and a fact shows why packets do not get through: that is what ended it, not a condition."""
    if any(
        signal.cause == "ib-path-unreachable" and signal.says >= Says.STRONG and not signal.condition
        for signal in signals
    ):
        for signal in signals:
            if signal.cause in ("roce-over-bond", "mtu-mismatch", "roce-gid-wrong") and signal.says is Says.STRONG:
                signal.condition = False


def _switched_off(signals: Sequence[Signal], readers: Readers) -> None:
    """A port that somebody switched off is mostly one that nobody uses; one that NCCL_IB_HCA leaves out is certainly none."""
    verbs = readers.verbs
    for signal in signals:
        places = [(item.source, item.line or 0) for item in signal.evidence]
        if verbs.off.intersection(places):
            signal.says = min(signal.says, Says.HINT)
        if signal.cause == "ib-link-or-hca-fault" and any(
            place in verbs.inactive and not verbs.used(verbs.inactive[place]) for place in places
        ):
            signal.says = Says.CASCADE


def _ended_while_waiting(signals: Sequence[Signal], readers: Readers) -> None:
    """A probe ended a start that stood before it loaded anything: it may have hung, and then a longer probe does not help."""
    stages = [ORDER.index(stage) for _, stage, _ in readers.starts.reached()]
    if stages and max(stages) < ORDER.index("load"):
        for signal in signals:
            if signal.cause == "slow-not-hung" and any(
                (item.source, item.line) in readers.pods.kills for item in signal.evidence
            ):
                signal.cause, signal.says, signal.candidates = "", Says.SYMPTOM, ("slow-not-hung",)


def _limit_after_a_fault(signals: Sequence[Signal]) -> None:
    """A job that ran into its time limit after something had broken in it hung until then."""
    for signal in signals:
        item = signal.evidence[0] if signal.evidence else None
        if signal.cause != "killed-by-scheduler" or item is None or not _TIME_LIMIT.search(item.text):
            continue
        if any(
            other.says >= Says.STRONG
            and not other.condition
            and other.cause != signal.cause
            and other.evidence[0].source == item.source
            and other.order < signal.order
            for other in signals
        ):
            signal.says = min(signal.says, Says.STRONG)


def _head_reached(signals: Sequence[Signal], readers: Readers) -> None:
    """A head that was not there yet and was reached a moment later."""
    for signal in signals:
        if signal.cause == "ray-gcs-unreachable" and signal.evidence:
            came = readers.starts.ray_up.get(signal.evidence[0].source, -1.0)
            if came > max(signal.order, signal.until):
                harmless(signal)


def _dead_by_word(signals: Sequence[Signal]) -> None:
    """A node that the head had given up does not reach it any more; one that the autoscaler took away when idle is no loss."""
    given_up = any(signal.cause == "ray-node-lost" and signal.says is Says.NAMED for signal in signals)
    taken = min((signal.order for signal in signals if signal.kind == IDLE), default=None)
    for signal in signals:
        if given_up and signal.cause == "ray-gcs-unreachable":
            signal.says = min(signal.says, Says.HINT)
        elif taken is not None and signal.cause == "ray-node-lost" and signal.order > taken:
            harmless(signal)


def _left_over(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A table of sockets shows an engine's process at the port that is taken, or one of processes shows workers without their engine: perhaps an earlier run."""
    full = [signal for signal in signals if signal.cause in _FULL and not signal.condition]
    occupied = next((signal for signal in signals if signal.cause in ("gpu-memory-occupied", "port-in-use")), None)
    orphans = readers.processes.orphans
    if orphans and occupied is None and full:
        occupied = full[0]
        for signal in full:
            signal.says = min(signal.says, Says.STRONG)
    if orphans and (occupied is not None or readers.smi.holders & set(orphans)):
        lines = [line.evidence() for line in list(orphans.values())[:4]]
        yield Signal(
            "stale-process",
            Says.STRONG,
            f"workers run without the engine that started them (parent 1): process {', '.join(map(str, list(orphans)[:6]))}",
            lines,
            {"pid": next(iter(orphans))},
            order=min((signal.order for signal in signals), default=0.0) - 1,
        )
    for signal in signals:
        holder = readers.sockets.holder(str(signal.where.get("port", ""))) if signal.cause == "port-in-use" else None
        if holder is not None:
            yield _of_holder(signal, holder, signals, readers)
            return


_PID = re.compile(r"\bpid=(\d{1,9})|^(\d{1,9})/")


def _of_holder(taken: Signal, holder: Row, signals: Sequence[Signal], readers: Readers) -> Signal:
    """Who listens at the port that is taken: ranks of an earlier run where a table of processes shows several of them without their launcher."""
    pid = _PID.search(holder.process)
    ranks = readers.processes.ranks_left(int(pid[1] or pid[2])) if pid else {}
    for signal in signals:
        if signal.cause == "port-in-use" and signal.where.get("port", holder.local_port) == holder.local_port:
            signal.says = min(signal.says, Says.STRONG)
    if ranks:
        return Signal(
            "stale-process",
            Says.STRONG,
            f"port {holder.local_port} is held by one of {len(ranks)} processes of one program that outlived their launcher (parent 1): an earlier run",
            [holder.line.evidence(), *[line.evidence() for line in list(ranks.values())[:4]]],
            {"pid": next(iter(ranks))},
            order=min(signal.order for signal in signals) - 1,
        )
    return Signal(
        "stale-process",
        Says.STRONG,
        f"port {holder.local_port} is held by {holder.process}: an earlier run, if it is none of this one",
        [holder.line.evidence()],
        order=taken.order + 1,
    )


def _waited_for_load(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A wait ran into its limit while one node still loaded what another one had."""
    uneven = readers.starts.uneven()
    if (
        uneven is not None
        and (readers.starts.ready is None or readers.starts.ready.source not in {line.source for line in uneven})
        and any(
            signal.says is Says.SYMPTOM
            and {"rank-stuck-outside-collective", "slow-load-peer-timeout"} & {*signal.candidates}
            and signal.order < STANDING - 9
            for signal in signals
        )
    ):
        yield Signal(
            "slow-load-peer-timeout",
            Says.STRONG,
            "one node still loads its weights while another one waits for it and runs into its time limit",
            [line.evidence() for line in uneven],
            speaker(uneven[0].shown),
            order=uneven[0].order,
        )


_LIMIT = re.compile(r"Timeout\(ms\)=(\d+)|wait timeout after (\d+)ms")
VERY_SLOW_S = 1800.0  # of a start, that is worth telling of a server that has been at work since
ANSWERS = 2  # that a server gives after its start, to be at work
LONG_WORK_S = 60.0  # of work before the common one, that a fixed limit of unknown length may have run out in


def _waited_for_work(signals: Sequence[Signal], readers: Readers) -> Iterator[Signal]:
    """A wait ran into its limit while work of one process, which says how far it is, was under way for most of that time."""
    for percent, seconds, line, others in _works(readers):
        if readers.starts.served is not None and readers.starts.served.order > line.order:
            continue
        for signal in signals:
            waits = signal.says is Says.SYMPTOM and {"rank-stuck-outside-collective", "slow-load-peer-timeout"} & {
                *signal.candidates
            }
            if not waits or signal.order >= STANDING - 9 or signal.evidence[0].source != line.source:
                continue
            limit = _LIMIT.search(signal.evidence[0].text)
            if seconds >= (int(limit[1] or limit[2]) / 2000 if limit else LONG_WORK_S):
                yield Signal(
                    "slow-load-peer-timeout",
                    Says.STRONG,
                    f"the others wait and run into their time limit while work of one process is at {percent}% after {seconds / 60:.0f} min and goes on",
                    [line.evidence(), *others, signal.evidence[0]],
                    speaker(line.shown),
                    order=signal.order,
                    remedy=_FASTER
                    if others
                    else "do this work before the launch (a cache on all nodes), or raise the time limit that fires (ddp_timeout, init_process_group's timeout, the library's own)",
                )
                return


_FASTER = "make what is slow there as fast as on the others (a copy of the checkpoint on that node's own disk, as they have), or raise the time limit that fires (ddp_timeout, init_process_group's timeout)"


def _works(readers: Readers) -> Iterator[tuple[int, float, Line, list[Evidence]]]:
    """Work that stands last, and work of one process that another one had finished in the same run: percent, seconds, line, and the line of the other one."""
    last, behind = readers.starts.preparing(), readers.starts.behind()
    if last is not None:
        yield (*last, [])
    if behind is not None:
        late, done = behind
        if readers.life.same_run(late.line.source, late.line.order, done.line.order):
            yield late.percent, late.seconds, late.line, [done.line.evidence()]


def _silent_death(signals: Sequence[Signal], readers: Readers, sources: int) -> None:
    """A peer is gone, several logs are here, and none of them holds an exception of its own: a process was killed."""
    if (
        sources < 2
        or readers.exceptions.own()
        or any(signal.says >= Says.STRONG and not signal.condition for signal in signals)
    ):
        return
    for signal in signals:
        if signal.cause == "rank-died" and signal.says is Says.HINT:
            signal.says = Says.STRONG


def _outcome(
    signals: Sequence[Signal], readers: Readers, facts: NcclFacts, order: dict[str, float]
) -> Iterator[Signal]:
    """`healthy` and `slow-not-hung`, where something shows that it worked and nothing that it ended."""
    starts = readers.starts
    ending = [signal for signal in signals if not signal.condition]
    real = [signal for signal in ending if signal.order < STANDING - 9]
    moving, slow = starts.moving() or _under_way(readers), starts.slow()
    long = readers.lasting.slow()
    if moving is not None and all(signal.order < moving.order and signal.says <= Says.SYMPTOM for signal in real):
        yield moving
    elif slow is not None and not real and starts.ready is None and starts.longest is not None:
        yield slow
    done = proof(readers)
    works = [line for line in (readers.life.finished, starts.worked, *readers.works()) if line is not None]
    if ending and (done is None or any(signal.says >= Says.HINT or not _outdone(signal, works) for signal in ending)):
        return
    if slow is not None and starts.ready is not None:
        yield _beside(slow, starts, done)
    elif long is not None and done is not None and (done is readers.life.stepped or _then_stepped(long, readers)):
        yield _beside(long, starts, done)
    elif long is not None and done is None:
        yield replace(long, says=Says.HINT)
    if done is not None:
        yield healthy(done, readers)
        return
    line = structure.initialised(facts)
    if line is not None and line.source in readers.life.interrupted:
        stopped = readers.life.interrupted[line.source]
        yield Signal(
            "",
            Says.SYMPTOM,
            "every communicator that is seen here is initialised; then somebody ended the run by hand: the first collective may hang",
            [stopped.evidence()],
            order=stopped.order,
            candidates=("p2p-broken", "rank-stuck-outside-collective", "framework-version-bug"),
        )
    elif line is not None:
        yield Signal(
            "healthy",
            Says.HINT,
            INITIALISED,
            [Evidence(line.source, line.text.strip(), line.line)],
            condition=True,
            order=order.get(line.source, 0.0) + line.line,
        )


def _outdone(signal: Signal, works: Sequence[Line]) -> bool:
    """Whether the same source shows a job at work after it: what another one shows may be another run."""
    source = signal.evidence[0].source if signal.evidence else ""
    return any(line.order > signal.order and line.source == source for line in works)


def _under_way(readers: Readers) -> Signal | None:
    """Counted work before a job that has not begun."""
    begun = readers.life.stepped or readers.starts.served or readers.bench.worked
    return readers.lasting.moving() if begun is None else None


def _then_stepped(long: Signal, readers: Readers) -> bool:
    """Whether the first step of a training follows a long piece of work."""
    return readers.life.first_step.get(long.evidence[0].source, -1.0) > long.order


def _beside(slow: Signal, starts: Starts, done: Line | None) -> Signal:
    """A slow start is what there is to say of a job that has just begun; one that goes on answering is well, and was slow once."""
    if done is None:
        return slow
    if starts.answers >= ANSWERS and starts.slow(VERY_SLOW_S) is None:
        return replace(slow, says=Says.HINT, order=done.order + 0.5)
    return replace(slow, order=min(slow.order, done.order - 0.5))


def _fine(documents: Documents, readers: Readers) -> Iterator[Signal]:
    """Nothing but facts was given, and they are good. That says what was read is well, not that the job is."""
    if documents.fine is not None:
        yield replace(documents.fine, cause="healthy")
    line = readers.verbs.up or readers.smi.calm or readers.query.calm
    if line is not None:
        yield Signal(
            "healthy",
            Says.HINT,
            "what was given shows nothing wrong",
            [line.evidence()],
            condition=True,
            order=line.order,
        )
