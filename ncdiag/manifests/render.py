"""From a plan to manifests: a Deployment where a node holds the engine, a LeaderWorkerSet or StatefulSet where several do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ncdiag.manifests.planned import RenderError
from ncdiag.manifests.skeleton import Shape, Skeleton, Wanted
from ncdiag.nodeset import counted


def render(plan: Mapping[str, Any], wanted: Wanted) -> str:
    """YAML with several documents. `plan`: the dict of `ncdiag plan --format json`. Raises RenderError."""
    best = plan.get("recommended") if isinstance(plan.get("recommended"), dict) else None
    if best is None or not best.get("tp"):
        raise RenderError("the plan recommends no layout: nothing fits; give --gpus more or larger nodes")
    shape = _shape(plan, best)
    form = wanted.form if wanted.form != "auto" else ("deployment" if shape.nodes == 1 else "lws")
    if (form == "deployment") != (shape.nodes == 1):
        raise RenderError(
            f"the engine spans {counted(shape.nodes, 'node')}: --form {form} does not fit; take {'deployment' if shape.nodes == 1 else 'lws or statefulset'}"
        )
    if shape.nodes > 1 and not wanted.interface:
        raise RenderError(
            "name the interface that reaches the other nodes: --interface (see: ncdiag env); without it NCCL and gloo choose by chance"
        )
    maker = Skeleton(plan, wanted, shape)
    documents = {"deployment": maker.deployment, "lws": maker.leader_worker_set, "statefulset": maker.stateful_set}[
        form
    ]()
    text = "---\n".join(yaml.dump(document, Dumper=_Plain, sort_keys=False, width=140) for document in documents)
    return _header(plan, best, wanted, shape) + text


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    """Scripts as blocks, so that people can read and change them."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Plain.add_representer(str, _text)


def _shape(plan: Mapping[str, Any], best: Mapping[str, Any]) -> Shape:
    cluster = plan["cluster"]
    nodes, per_node = int(best["nodes"]), int(cluster["gpus_per_node"])
    if nodes == 1:
        copies_here = max(1, per_node // int(best["gpus"])) if int(best.get("dp") or 1) == 1 else 1
        return Shape(1, int(best["gpus"]) * copies_here, 0, int(cluster["nodes"]))
    spread = int(best.get("dp") or 1) > 1
    gpus = -(-int(best["gpus"]) // nodes)
    return Shape(
        nodes,
        gpus,
        gpus // (int(best["tp"]) * int(best["pp"])) if spread else 0,
        max(1, int(best.get("replicas") or 1)),
    )


def _header(plan: Mapping[str, Any], best: Mapping[str, Any], wanted: Wanted, shape: Shape) -> str:
    sizes = (
        " x ".join(f"{key.upper()} {best[key]}" for key in ("tp", "pp", "dp") if int(best.get(key) or 1) > 1)
        or "one GPU"
    )
    lines = [
        f"Written by `ncdiag k8s render`: {sizes} on {counted(shape.nodes, 'node')} of {shape.gpus} {plan['cluster']['gpu']}, {counted(shape.copies, 'engine')}.",
        f"Set what is yours: the image and its version, the claim {wanted.claim} with the model, node labels"
        + (f", the RDMA resource {wanted.rdma}" if wanted.rdma and shape.nodes > 1 else "")
        + (f", the interface {wanted.interface}" if shape.nodes > 1 else "")
        + ".",
        "Check it: ncdiag k8s lint FILE",
    ]
    return "".join(f"# {line}\n" for line in lines)
