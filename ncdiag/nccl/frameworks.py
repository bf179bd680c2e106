"""What is wrong with the variables of vLLM, Ray, torch and gloo on one node. Pure; travels to nodes.

Source: vllm/envs.py (0.9 to 0.33), torch/csrc/distributed/c10d (ProcessGroupNCCL.hpp, ProcessGroupGloo.cpp), ray/_private/ray_constants.py,
CUDA programming guide (CUDA_VISIBLE_DEVICES).
"""

from __future__ import annotations

import functools
import re
from typing import Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ncdiag.nccl.framework_names import RAY, TORCH, VLLM
from ncdiag.nodeset import counted

SERVICE = re.compile(r"(?:VLLM|RAY)_(?:[A-Z0-9]+_)*(?:SERVICE_(?:HOST|PORT)|PORT_\d+_(?:TCP|UDP))")
"""What Kubernetes sets for a Service called vllm… or ray…, and nobody else does."""


class Plan(NamedTuple):
    """What of the plan matters here; None: not said."""

    gpus_per_node: Optional[int] = None
    model: Optional[str] = None
    several_nodes: bool = False
    interfaces: Optional[Sequence[str]] = None
    """The links of the node that have an address."""
    addresses: Optional[Sequence[str]] = None


class Trouble(NamedTuple):
    """What is amiss with one variable."""

    name: str
    summary: str
    expected: str
    remedy: str
    cause: str = "env-unknown-or-invalid"
    fatal: bool = False


@functools.lru_cache(maxsize=1)
def known() -> Tuple[Dict[str, bool], FrozenSet[str]]:
    """`(vLLM's names -> must be a whole number, Ray's, torch's and gloo's names)`."""
    vllm = {"VLLM_" + item.rstrip("#"): item.endswith("#") for item in VLLM.split()}
    return vllm, frozenset(["RAY_" + item for item in RAY.split()] + TORCH.split())


def slip(name: str, names: Sequence[str]) -> Optional[str]:
    """The one known name that `name` differs from by a slip: case, a separator, one wrong letter, one or two missing or added (no digits)."""

    def letters(text: str) -> str:
        return re.sub(r"[^A-Z0-9]", "", text.upper())

    def digits(text: str) -> str:
        return re.sub(r"\D", "", text)

    near = [
        item
        for item in names
        if digits(item) == digits(name)
        and abs(len(item) - len(name)) <= 2
        and (letters(item) == letters(name) or _distance(letters(item), letters(name), 2) <= 2)
    ]
    return min(near, key=lambda item: _distance(item, name, 9)) if near else None


def _distance(one: str, two: str, most: int) -> int:
    """Letters to insert or delete (a wrong letter is one of each); more than `most` where it is more than that."""
    row = list(range(len(two) + 1))
    for place, letter in enumerate(one, 1):
        before, row = row, [place]
        for column, other in enumerate(two, 1):
            row.append(before[column - 1] if letter == other else min(before[column], row[-1]) + 1)
        if min(row) > most:
            return most + 1
    return row[-1]


def find(environ: Mapping[str, str], plan: Plan, absent: Sequence[str] = ()) -> List[Trouble]:
    """Everything amiss, in the order of the rules. `absent`: files named by variables that are not there."""
    found = [trouble for rule in RULES for trouble in rule(environ, plan)]
    for path in absent:
        name = next((name for name, value in environ.items() if path in value), "")
        found.append(
            Trouble(
                name, "%s names %s, which is not there" % (name, path), "files that exist", "correct or unset " + name
            )
        )
    return found


def _names(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    vllm, others = known()
    names = [*vllm, *others]
    for name in environ:
        if (
            not re.match(r"(?:VLLM|RAY|TORCH_NCCL|TORCH_FR|GLOO|TP)_", name, re.I)
            or name in vllm
            or name in others
            or SERVICE.match(name)
        ):
            continue
        meant = slip(name, names)
        if meant is not None and meant not in environ:
            yield Trouble(
                name,
                "%s is no name that is known here; %s is" % (name, meant),
                meant,
                "unset %s; export %s=%s" % (name, meant, environ[name]),
            )


def _vllm(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    port = environ.get("VLLM_PORT", "")
    if "://" in port:
        yield Trouble(
            "VLLM_PORT",
            "VLLM_PORT=%s is an address that Kubernetes made for a Service called vllm; vLLM ends with a ValueError"
            % port,
            "a port number, or not set",
            "rename the Service (not vllm), or set enableServiceLinks: false in the pod",
            fatal=True,
        )
    elif port and not port.isdecimal():
        yield Trouble(
            "VLLM_PORT",
            "VLLM_PORT=%s is no number; vLLM ends with a ValueError" % port,
            "a port number",
            "unset VLLM_PORT",
            fatal=True,
        )
    elif port:
        yield from _port_base(int(port), environ)
    for name, whole in known()[0].items():
        value = environ.get(name, "")
        if whole and name in environ and re.match(r"\s*[+-]?\d+\s*$", value) is None and not SERVICE.match(name):
            yield Trouble(
                name,
                "%s=%s is no whole number; vLLM ends with a ValueError when it reads it" % (name, value),
                "a whole number",
                "export %s=%d" % (name, value.strip().lower() in ("true", "yes", "on")),
                fatal=True,
            )
    method = environ.get("VLLM_WORKER_MULTIPROC_METHOD")
    if method is not None and method not in ("fork", "spawn"):
        yield Trouble(
            "VLLM_WORKER_MULTIPROC_METHOD",
            "VLLM_WORKER_MULTIPROC_METHOD=%s is neither fork nor spawn" % method,
            "fork or spawn",
            "export VLLM_WORKER_MULTIPROC_METHOD=spawn",
            fatal=True,
        )
    told = environ.get("HOST_IP", "")
    if "HOST_IP" in environ and "VLLM_HOST_IP" not in environ:
        strange = bool(plan.addresses) and told not in (plan.addresses or ())
        yield Trouble(
            "HOST_IP",
            "HOST_IP=%s is set and VLLM_HOST_IP is not: vLLM has not read HOST_IP since 0.7%s"
            % (told, "; nor does an interface of this node hold that address" if strange else ""),
            "VLLM_HOST_IP",
            "unset HOST_IP; export VLLM_HOST_IP=<this node's address on the peers' network>"
            if strange
            else "export VLLM_HOST_IP=%s if that is the address meant" % told,
            "node-ip-wrong-interface",
        )


def _port_base(port: int, environ: Mapping[str, str]) -> Iterator[Trouble]:
    """VLLM_PORT is the first of the ports inside the engine, not the port of the API."""
    if not 0 < port < 65536:
        yield Trouble("VLLM_PORT", "VLLM_PORT=%d is no port" % port, "1 to 65535", "unset VLLM_PORT", fatal=True)
    elif port in (8000, 6379, 29500) or str(port) == environ.get("MASTER_PORT"):
        yield Trouble(
            "VLLM_PORT",
            "VLLM_PORT=%d is the first port for traffic inside the engine; %s usually holds it"
            % (port, {8000: "the API server", 6379: "Ray's head"}.get(port, "the rendezvous store")),
            "a range of free ports of its own",
            "unset VLLM_PORT (the API's port is --port)",
            "port-in-use",
        )


LEFT_ON = (
    (
        "CUDA_LAUNCH_BLOCKING",
        "every kernel is waited for: slow, and collectives of several streams can block each other",
    ),
    ("VLLM_TRACE_FUNCTION", "every Python function is logged: start-up takes many times as long"),
    ("VLLM_DISABLE_PYNCCL", "vLLM's own NCCL calls are off; torch's take their place, slower under CUDA graphs"),
    ("TORCH_NCCL_BLOCKING_WAIT", "no watchdog thread is made, and every wait blocks"),
    ("TORCH_NCCL_DESYNC_DEBUG", "every collective is reported to the store"),
    ("TORCH_NCCL_NAN_CHECK", "every buffer is searched for NaN before it is sent"),
    ("TORCH_SHOW_DISPATCH_TRACE", "every operator is logged"),
)
"""What people switch on to find a fault and forget, and what it costs."""


def _left_on(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    for name, cost in LEFT_ON:
        if environ.get(name, "").strip().lower() in ("1", "true", "yes", "on", "y"):
            yield Trouble(
                name,
                "%s=%s is on: %s" % (name, environ[name], cost),
                "not set, outside a hunt for a fault",
                "unset " + name,
            )
    if environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL":
        yield Trouble(
            "TORCH_DISTRIBUTED_DEBUG",
            "TORCH_DISTRIBUTED_DEBUG=%s checks every collective with another one over gloo"
            % environ["TORCH_DISTRIBUTED_DEBUG"],
            "OFF or INFO",
            "unset TORCH_DISTRIBUTED_DEBUG",
        )
    level = environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF")
    if level.upper() not in ("OFF", "INFO", "DETAIL"):
        yield Trouble(
            "TORCH_DISTRIBUTED_DEBUG",
            "TORCH_DISTRIBUTED_DEBUG=%s is none of OFF, INFO, DETAIL: torch raises an error" % level,
            "OFF, INFO or DETAIL",
            "unset TORCH_DISTRIBUTED_DEBUG",
            fatal=True,
        )
    if environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "").strip() == "0":
        yield Trouble(
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=0: a collective that hangs is never reported",
            "3, its default",
            "unset TORCH_NCCL_ASYNC_ERROR_HANDLING",
        )


def _gloo(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    """gloo and TensorPipe take exact names; the signs are NCCL's."""
    for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = environ.get(name, "")
        if value[:1] in ("^", "=") or " " in value:
            yield Trouble(
                name,
                "%s=%s: only NCCL knows ^ and =, and no library cuts blanks; this one looks for a link of exactly that name"
                % (name, value),
                "the exact name of an interface",
                "export %s=%s" % (name, value.strip("^= ").partition(",")[0] if value[:1] == "=" else "<interface>"),
                "socket-ifname-wrong",
                True,
            )


def _tensorpipe(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    """torch's RPC takes one exact name, and falls back to loopback with a warning. gloo's choice is judged with NCCL's."""
    value = environ.get("TP_SOCKET_IFNAME", "")
    if value and value[:1] not in "^=" and " " not in value and plan.interfaces and value not in plan.interfaces:
        yield Trouble(
            "TP_SOCKET_IFNAME",
            "TP_SOCKET_IFNAME=%s is no interface with an address here (there are %s): torch's RPC then takes 127.0.0.1"
            % (value, ", ".join(plan.interfaces)),
            "one of " + ", ".join(plan.interfaces),
            "unset TP_SOCKET_IFNAME, or give it the exact name of one interface",
            "socket-ifname-wrong",
        )


def _devices(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in environ:
            yield from _device_list(name, environ[name], plan)
    hip, cuda = environ.get("HIP_VISIBLE_DEVICES"), environ.get("CUDA_VISIBLE_DEVICES")
    if hip is not None and cuda is not None and hip != cuda:
        yield Trouble(
            "HIP_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES=%s and CUDA_VISIBLE_DEVICES=%s differ: they apply one after the other" % (hip, cuda),
            "one of the two",
            "unset one of them",
            "visible-devices-conflict",
        )
    if environ.get("NVIDIA_VISIBLE_DEVICES", "").lower() in ("none", "void"):
        yield Trouble(
            "NVIDIA_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES=%s keeps every GPU out of this container" % environ["NVIDIA_VISIBLE_DEVICES"],
            "all, or the devices",
            "start the container with --gpus all, or ask for GPUs in the pod",
            "visible-devices-conflict",
        )


def _device_list(name: str, value: str, plan: Plan) -> Iterator[Trouble]:
    items = [item.strip() for item in value.split(",")]
    good = re.compile(r"\d+$|(?:GPU|MIG)-[0-9a-fA-F/-]+$")
    stop = next((place for place, item in enumerate(items) if not good.match(item)), len(items))
    visible = items[:stop]
    if stop < len(items) and value.strip():
        yield Trouble(
            name,
            "%s=%s: the list ends before %r, which is no device; %d GPUs are left" % (name, value, items[stop], stop),
            "numbers or UUIDs with commas between",
            "export %s=%s" % (name, ",".join(item for item in items if good.match(item)) or "0"),
            "visible-devices-conflict",
            stop == 0 or (plan.gpus_per_node or 0) > stop,
        )
    elif not value.strip():
        yield Trouble(
            name,
            "%s is set and empty: no GPU is visible" % name,
            "not set, or the devices",
            "unset " + name,
            "visible-devices-conflict",
            True,
        )
    elif len(set(visible)) < len(visible):
        yield Trouble(
            name,
            "%s=%s names a device twice: CUDA then shows none, or two ranks share one" % (name, value),
            "each device once",
            "export %s=%s" % (name, ",".join(dict.fromkeys(visible))),
            "visible-devices-conflict",
            True,
        )
    elif plan.gpus_per_node and len(visible) < plan.gpus_per_node:
        yield Trouble(
            name,
            "%s=%s shows %d GPUs; the plan needs %d on this node" % (name, value, len(visible), plan.gpus_per_node),
            counted(plan.gpus_per_node, "device"),
            "unset %s, or name %s" % (name, counted(plan.gpus_per_node, "device")),
            "visible-devices-conflict",
            True,
        )


def _ranks(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    """What torchrun, Slurm or an earlier run left in the shell."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        if name in environ and not environ[name].strip().isdecimal():
            yield Trouble(
                name,
                "%s=%s is no whole number" % (name, environ[name]),
                "a whole number",
                "unset " + name,
                fatal=name != "MASTER_PORT",
            )
    rank, size = environ.get("RANK", "").strip(), environ.get("WORLD_SIZE", "").strip()
    if rank.isdecimal() and size.isdecimal() and int(rank) >= int(size):
        yield Trouble(
            "RANK",
            "RANK=%s is not below WORLD_SIZE=%s" % (rank, size),
            "0 to WORLD_SIZE - 1",
            "unset RANK and WORLD_SIZE, or correct them",
            "rank-layout-wrong",
            True,
        )
    if environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR"):
        yield Trouble(
            "RAY_JOB_CONFIG_JSON_ENV_VAR",
            "the environment is that of a Ray job: a ray.init inside it takes over the outer job's settings",
            "not set where another Ray is started",
            "unset RAY_JOB_CONFIG_JSON_ENV_VAR before the inner start",
            "ray-nested-environment",
        )


def _offline(environ: Mapping[str, str], plan: Plan) -> Iterator[Trouble]:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        on = environ.get(name, "").strip().upper() in ("1", "TRUE", "YES", "ON")
        if on and plan.model and not plan.model.startswith(("/", "./", "../")) and "://" not in plan.model:
            yield Trouble(
                name,
                "%s=%s: the model %s must be in the cache of every node, nothing is downloaded"
                % (name, environ[name], plan.model),
                "a local path, or the hub reachable",
                "give the model's local path, or unset " + name,
                "model-path-missing",
            )


Rule = Callable[[Mapping[str, str], Plan], Iterator[Trouble]]
RULES: Sequence[Rule] = (_names, _vllm, _left_on, _gloo, _tensorpipe, _devices, _ranks, _offline)
