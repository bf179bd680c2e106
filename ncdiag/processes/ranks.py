"""Which rank a process is: from its environment, its title, its log lines, its local variables, or the order of start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ncdiag.model import RankState
from ncdiag.processes.look import Look
from ncdiag.processes.machine import option

ENVIRONMENT = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""Rank, world size, local rank as torchrun, Open MPI, MPICH and Slurm name them. A batch script has SLURM_PROCID too, but no step size."""
_PART = re.compile(r"_(DP|PP|PCP|TP|DCP|EP)(\d+)")
_LOG = re.compile(r"\bworld_size=(\d+) rank=(\d+) local_rank=(\d+)\b")
_SIZES = {
    "tp": ("--tensor-parallel-size", "-tp"),
    "pp": ("--pipeline-parallel-size", "-pp"),
    "pcp": ("--prefill-context-parallel-size", "-pcp"),
}


def from_environment(state: RankState, environ: Mapping[str, str]) -> None:
    """For a program that its launcher told its rank."""
    for rank, world, local in ENVIRONMENT:
        if environ.get(rank, "").isdecimal() and environ.get(world, "").isdecimal():
            state.rank, state.world_size, state.rank_source = int(environ[rank]), int(environ[world]), "environment"
            state.local_rank = int(environ[local]) if environ.get(local, "").isdecimal() else None
            return


def sizes(argv: Sequence[str]) -> tuple[dict[str, int], int, int]:
    """(`tp`, `pp`, `pcp`; 1 where not given), number of nodes, node rank, of a `vllm serve` command line."""

    def number(names: Iterable[str], default: int) -> int:
        value = option(argv, *names)
        return int(value) if value and value.isdecimal() else default

    return (
        {key: number(names, 1) for key, names in _SIZES.items()},
        number(("--nnodes", "-n"), 1),
        number(("--node-rank", "-r"), 0),
    )


def from_title(state: RankState, argv: Sequence[str]) -> None:
    """`VLLM::Worker_PP1_TP0` with the sizes of the command line: ranks run over TP fastest, then PCP, then PP. DP ranks are groups of their own."""
    parts = {name.lower(): int(number) for name, number in _PART.findall(state.title.split(" ")[0])}
    size, _, _ = sizes(argv)
    if not parts or any(parts.get(key, 0) >= size[key] for key in size):
        return
    state.rank = (parts.get("pp", 0) * size["pcp"] + parts.get("pcp", 0)) * size["tp"] + parts.get("tp", 0)
    state.world_size, state.rank_source = size["tp"] * size["pp"] * size["pcp"], "title"


def from_log(state: RankState, lines: Iterable[str]) -> None:
    """vLLM's own line `world_size=2 rank=0 local_rank=0 distributed_init_method=…`."""
    for line in lines:
        match = _LOG.search(line)
        if match:
            state.world_size, state.rank, state.local_rank = (int(number) for number in match.groups())
            state.rank_source = "log"


def from_variables(state: RankState) -> None:
    """Local variables of init_process_group and the like."""
    rank, world = state.variables.get("rank", ""), state.variables.get("world_size", "")
    if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
        state.rank, state.world_size, state.rank_source = int(rank), int(world), "locals"


def number(looks: Mapping[int, Look]) -> None:
    """Every rank that can be known before a stack is read."""
    for look in looks.values():
        if look.member.role == "script":
            from_environment(look.state, look.member.proc.environ)
        elif look.member.role == "worker" and look.state.rank is None:
            from_title(look.state, _server(look, looks))
    for parent in dict.fromkeys(look.state.parent for look in looks.values() if look.member.role == "worker"):
        workers = [look for look in looks.values() if look.state.parent == parent and look.member.role == "worker"]
        by_order(sorted(workers, key=_start), _server(workers[0], looks))


def _server(look: Look, looks: Mapping[int, Look]) -> Sequence[str]:
    """The command line of the server that `look` belongs to."""
    above: Look | None = look
    while above is not None and above.member.role not in ("api-server", "headless"):
        above = looks.get(above.member.proc.parent)
    return above.member.proc.argv if above is not None else ()


def _start(look: Look) -> tuple[int, int]:
    return look.member.proc.start_ticks, look.member.proc.pid


def by_order(workers: Sequence[Look], argv: Sequence[str]) -> None:
    """vLLM workers of one executor, in the order of their start, which did not say their rank: it starts them in the order of local ranks."""
    size, nodes, node_rank = sizes(argv)
    world = size["tp"] * size["pp"] * size["pcp"]
    if len(workers) * nodes != world:
        return
    for local, worker in enumerate(workers):
        state = worker.state
        if state.rank is None:
            state.rank, state.local_rank, state.world_size, state.rank_source = (
                node_rank * len(workers) + local,
                local,
                world,
                "order",
            )
