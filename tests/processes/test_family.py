"""From any pid to the whole engine: real multiprocessing families, and the process trees of vLLM, Ray and torchrun as their /proc shows them."""

from __future__ import annotations

import ipaddress
import os
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.processes import machine
from ncdiag.processes.family import FamilyError, find
from ncdiag.processes.machine import option
from ncdiag.tree import MemoryTree
from tests.processes.programs import CHILDREN, LOCK, RANK, running

PYTHON = "/usr/bin/python3.12"
SPAWN = f"{PYTHON}\0-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9, pipe_handle=11)\0--multiprocessing-fork"
TRACKER = f"{PYTHON}\0-c\0from multiprocessing.resource_tracker import main;main(8)"


class Machine:
    """A /proc put together process by process."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.host = Recorded(self.tree)
        self.pids: list[int] = []
        self.lines: list[str] = []

    def add(
        self,
        pid: int,
        parent: int,
        command: str,
        comm: str = "python3",
        *,
        exe: str = PYTHON,
        environ: str = "",
        fds: tuple[str, ...] = (),
        state: str = "S",
    ) -> None:
        self.pids.append(pid)
        stat = f"{pid} ({comm}) {state} {parent} {pid} {pid} 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {pid * 10} 1000 10 0"
        for name, content in (
            ("stat", stat),
            ("cmdline", command + "\0"),
            ("environ", environ),
            ("status", f"NSpid:\t{pid}\n"),
        ):
            self.tree.add_file(f"/proc/{pid}/{name}", content.encode())
        self.tree.add_link(f"/proc/{pid}/exe", exe)
        for number, target in enumerate(fds):
            self.tree.add_link(f"/proc/{pid}/fd/{number}", target)

    def connect(self, pid: int, inode: int, local: str, remote: str) -> None:
        """An established connection in the machine's one network namespace."""

        def number(text: str) -> str:
            address, port = text.split(":")
            return f"{int.from_bytes(ipaddress.ip_address(address).packed, sys.byteorder):08X}:{int(port):04X}"

        self.lines.append(
            f" 0: {number(local)} {number(remote)} 01 00000000:00000000 00:00000000 00000000 0 0 {inode} 1"
        )
        for each in self.pids:
            self.tree.add_link(f"/proc/{each}/ns/net", "net:[1]")
            self.tree.add_file(f"/proc/{each}/net/tcp", ("head\n" + "\n".join(self.lines)).encode())

    def roles(self, pid: int) -> dict[int, str]:
        return {pid: member.role for pid, member in find(self.host, [pid]).items()}


def test_every_start_method_gives_the_same_family(tmp_path: Path) -> None:
    for method in ("fork", "spawn", "forkserver"):
        with running(CHILDREN, method, folder=tmp_path) as (program, pids):
            children = {int(pid) for pid in pids}
            for start in (program.pid, min(children)):
                family = find(Host(), [start])
                assert set(family) == {program.pid, *children}, method
                assert family[program.pid].role == "launcher"
                assert {family[pid].role for pid in children} == {"script"}
                assert not [helper for member in family.values() for helper in member.helpers]


def test_ranks_of_one_rendezvous_are_one_family(tmp_path: Path) -> None:
    with ExitStack() as stack:
        pids = [
            stack.enter_context(
                running(
                    RANK,
                    folder=tmp_path / str(rank),
                    environment={
                        "RANK": str(rank),
                        "WORLD_SIZE": "2",
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(port),
                    },
                )
            )[0].pid
            for port in (29871, 29872)
            for rank in (0, 1)
        ]
        assert set(find(Host(), [pids[0]])) == set(pids[:2])
        assert set(find(Host(), [pids[3]])) == set(pids[2:])


def test_a_data_loader_is_a_helper_of_its_rank(tmp_path: Path) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29873"}
    with running(CHILDREN, "fork", folder=tmp_path, environment=environment) as (program, pids):
        family = find(Host(), [int(pids[0])])
        assert set(family) == {program.pid} and family[program.pid].role == "script"
        assert sorted(helper.pid for helper in family[program.pid].helpers) == sorted(int(pid) for pid in pids)


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="network namespaces need root and util-linux"
)
def test_loopback_is_another_place_in_every_container(tmp_path: Path) -> None:
    with ExitStack() as stack:
        met: dict[str, list[int]] = {}
        for address, port, prefix in (
            ("127.0.0.1", 29875, ()),
            ("127.0.0.1", 29875, ("unshare", "--net")),
            ("10.77.0.9", 29876, ()),
            ("10.77.0.9", 29876, ("unshare", "--net")),
        ):
            number = len(met.setdefault(address, []))
            place = {"RANK": str(number), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": str(port)}
            folder = tmp_path / f"{address}-{number}"
            met[address].append(
                stack.enter_context(running(RANK, folder=folder, environment=place, prefix=prefix))[0].pid
            )
        assert set(find(Host(), met["127.0.0.1"][:1])) == set(met["127.0.0.1"][:1])
        assert set(find(Host(), met["10.77.0.9"][:1])) == set(met["10.77.0.9"]), "pods of one job"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_data_loaders_of_a_rank_that_was_killed_are_no_ranks(tmp_path: Path, method: str) -> None:
    environment = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29874"}
    with (
        running(CHILDREN, method, folder=tmp_path / "1", environment={**environment, "RANK": "1"}) as (killed, orphans),
        running(RANK, folder=tmp_path / "0", environment={**environment, "RANK": "0"}) as (left, _),
    ):
        assert set(find(Host(), [left.pid])) == {left.pid, killed.pid}
        killed.kill()
        killed.wait()
        assert set(find(Host(), [left.pid])) == {left.pid}
        alive = [int(pid) for pid in orphans if Path(f"/proc/{pid}/stat").exists()]
        seen = machine.Machine(Host())
        assert all(machine.inherits(proc) for pid in alive if (proc := seen.get(pid)) is not None)
        for pid in alive:
            assert pid in find(Host(), [pid]), "who asks for one of them is told about it"


def test_a_plain_program_is_its_own_family(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        assert list(find(Host(), [program.pid])) == [program.pid]


def test_an_ended_pid_is_said(tmp_path: Path) -> None:
    with running(LOCK, folder=tmp_path) as (program, _):
        pass
    with pytest.raises(FamilyError, match=rf"no process {program.pid} here: it has ended"):
        find(Host(), [program.pid])


def test_a_pid_from_inside_a_container_leads_to_the_one_outside(tmp_path: Path) -> None:
    machine = Machine()
    machine.add(4711, 4700, f"{PYTHON}\0train.py")
    machine.tree.add_file("/proc/4711/status", b"NSpid:\t4711\t17\n")
    with pytest.raises(FamilyError, match=r"inside a container that number is process 4711"):
        find(machine.host, [17])


def vllm(
    machine: Machine,
    first: int = 100,
    arguments: str = "serve\0/model\0--tensor-parallel-size\x002",
    titles: bool = True,
) -> None:
    machine.add(first, first - 1, f"{PYTHON}\0/venv/bin/vllm\0{arguments}")
    machine.add(first + 1, first, TRACKER)
    machine.add(first + 2, first, "VLLM::EngineCore" if titles else SPAWN, "VLLM::EngineCor" if titles else "python3")
    for number in (0, 1):
        machine.add(
            first + 3 + number,
            first + 2,
            f"VLLM::Worker_TP{number}" if titles else SPAWN,
            "VLLM::Worker_TP" if titles else "python3",
        )


@pytest.mark.parametrize("titles", [True, False])
@pytest.mark.parametrize("start", [100, 102, 104])
def test_vllm_with_and_without_titles(titles: bool, start: int) -> None:
    machine = Machine()
    vllm(machine, titles=titles)
    machine.add(1, 0, "/sbin/init", "systemd", exe="/usr/lib/systemd/systemd")
    machine.add(900, 1, f"{PYTHON}\0other.py")
    assert machine.roles(start) == {100: "api-server", 102: "engine-core", 103: "worker", 104: "worker"}


def test_vllm_as_the_first_process_of_a_container() -> None:
    machine = Machine()
    vllm(machine, first=1)
    assert machine.roles(4) == {1: "api-server", 3: "engine-core", 4: "worker", 5: "worker"}


def test_forked_vllm_children_before_they_take_a_title() -> None:
    machine, command = Machine(), f"{PYTHON}\0/venv/bin/vllm\0serve\0/model"
    machine.add(10, 1, command)
    machine.add(11, 10, command)
    machine.add(12, 11, command)
    assert machine.roles(12) == {10: "api-server", 11: "engine-core", 12: "worker"}


def test_a_zombie_worker_is_a_member() -> None:
    machine = Machine()
    vllm(machine)
    machine.add(105, 102, "", "VLLM::Worker_TP", state="Z")
    machine.tree.add_file("/proc/105/cmdline", b"")
    assert machine.roles(100)[105] == "worker"


def test_two_nodes_of_one_group_on_one_machine() -> None:
    machine = Machine()
    group = "\0--nnodes\x002\0--master-addr\x0010.77.0.1\0--master-port\x0029501"
    vllm(machine, 100, f"serve\0/model{group}\0--node-rank\x000")
    machine.add(200, 1, f"{PYTHON}\0/venv/bin/vllm\0serve\0/model{group}\0--node-rank\x001\0--headless")
    machine.add(201, 200, "VLLM::Worker", "VLLM::Worker")
    machine.add(300, 1, f"{PYTHON}\0/venv/bin/vllm\0serve\0/model\0--master-port\x0029777\0--headless")
    assert machine.roles(201) == {
        200: "headless",
        201: "worker",
        100: "api-server",
        102: "engine-core",
        103: "worker",
        104: "worker",
    }


def test_compilers_and_compile_workers_are_helpers_of_their_worker() -> None:
    machine = Machine()
    vllm(machine)
    machine.add(110, 103, f"{PYTHON}\0/site-packages/torch/_inductor/compile_worker/__main__.py")
    machine.add(111, 110, "cc1plus\0-quiet", "cc1plus", exe="/usr/lib/gcc/cc1plus")
    family = find(machine.host, [100])
    assert set(family) == {100, 102, 103, 104}
    assert [helper.comm for helper in family[103].helpers] == ["python3", "cc1plus"]


def ray(machine: Machine) -> None:
    log = "/tmp/ray/session_1/logs/"
    machine.add(
        50,
        1,
        "/site-packages/ray/core/src/ray/raylet/raylet",
        "raylet",
        exe="/site-packages/ray/core/src/ray/raylet/raylet",
    )
    machine.add(51, 50, f"{PYTHON}\0/site-packages/ray/dashboard/agent.py")
    for pid, job in ((60, "01000000"), (61, "01000000"), (62, "02000000")):
        machine.add(
            pid, 50, "ray::RayWorkerProc.run", "ray::RayWorkerP", fds=(f"{log}worker-{'ab' * 28}-{job}-{pid}.out",)
        )
    machine.add(63, 50, "ray::IDLE", "ray::IDLE", fds=(f"{log}worker-{'cd' * 28}-01000000-63.out",))
    machine.add(70, 1, f"{PYTHON}\0/venv/bin/vllm\0serve\0/model\0--distributed-executor-backend\0ray")
    machine.add(
        71, 70, "VLLM::EngineCore", "VLLM::EngineCor", fds=(f"{log}python-core-driver-01000000{'f' * 48}_71.log",)
    )


@pytest.mark.parametrize("start", [60, 70, 71])
def test_ray_workers_of_the_same_job_only(start: int) -> None:
    machine = Machine()
    ray(machine)
    assert machine.roles(start) == {60: "ray-worker", 61: "ray-worker", 70: "api-server", 71: "engine-core"}


@pytest.mark.parametrize("start", [64, 71])
def test_a_ray_worker_that_was_started_ahead_of_any_job(start: int) -> None:
    machine = Machine()
    ray(machine)
    for pid, remote in ((64, "10.77.0.1:7001"), (65, "10.77.0.1:7002")):
        machine.add(
            pid,
            50,
            "ray::RayWorkerProc.run",
            "ray::RayWorkerP",
            fds=(f"/tmp/ray/session_1/logs/worker-{'ef' * 28}-ffffffff-{pid}.err", f"socket:[{pid}]"),
        )
        machine.connect(pid, pid, f"10.77.0.1:{pid}", remote)
    machine.tree.add_link("/proc/71/fd/9", "socket:[71]")
    machine.tree.add_link("/proc/62/fd/9", "socket:[62]")
    machine.connect(71, 71, "10.77.0.1:7001", "10.77.0.1:64")
    machine.connect(62, 62, "10.77.0.1:7002", "10.77.0.1:65")
    assert set(machine.roles(start)) == {60, 61, 64, 70, 71}


def test_torchrun_and_its_shell_wrappers() -> None:
    machine = Machine()
    machine.add(10, 1, f"{PYTHON}\0/venv/bin/torchrun\0--nproc-per-node\x002\0run.sh", "torchrun")
    for rank in (0, 1):
        environ = f"RANK={rank}\0WORLD_SIZE=2\0MASTER_PORT=29500\0"
        machine.add(20 + rank, 10, "/bin/bash\0run.sh", "bash", exe="/usr/bin/bash", environ=environ)
        machine.add(30 + rank, 20 + rank, f"{PYTHON}\0train.py", environ=environ)
    assert machine.roles(31) == {10: "launcher", 30: "script", 31: "script"}


def test_the_terminal_and_an_outer_program_are_not_climbed_to() -> None:
    machine = Machine()
    machine.add(5, 1, "/usr/sbin/sshd", "sshd", exe="/usr/sbin/sshd")
    machine.add(6, 5, "-bash", "bash", exe="/usr/bin/bash")
    machine.add(7, 6, f"{PYTHON}\0/usr/bin/supervisord", "supervisord")
    machine.add(8, 7, f"{PYTHON}\0/venv/bin/vllm\0serve\0/model")
    machine.add(9, 8, "VLLM::EngineCore", "VLLM::EngineCor")
    assert machine.roles(9) == {8: "api-server", 9: "engine-core"}


def test_a_wrapper_leads_to_what_it_started() -> None:
    machine = Machine()
    machine.add(1, 0, "/usr/bin/tini\0--\0run.sh", "tini", exe="/usr/bin/tini")
    machine.add(2, 1, "/bin/bash\0run.sh", "bash", exe="/usr/bin/bash")
    vllm(machine, 3)
    machine.add(3, 2, f"{PYTHON}\0/venv/bin/vllm\0serve\0/model")
    assert set(machine.roles(1)) == set(machine.roles(2)) == {3, 5, 6, 7}


def test_init_and_other_programs_are_no_engine() -> None:
    machine = Machine()
    machine.add(1, 0, "/sbin/init", "systemd", exe="/usr/lib/systemd/systemd")
    machine.add(10, 1, "/usr/sbin/nginx", "nginx", exe="/usr/sbin/nginx")
    for pid in (20, 30):
        machine.add(pid, 1, f"{PYTHON}\0server{pid}.py")
    with pytest.raises(
        FamilyError,
        match=r"process 1 \(systemd\) is no Python program; it started 20 .*server20.py\); 30 .*: give one of these",
    ):
        find(machine.host, [1])
    with pytest.raises(FamilyError, match=r"process 10 \(nginx\) is no Python program and started none"):
        find(machine.host, [10])


def test_options_in_both_forms() -> None:
    argv = ["vllm", "serve", "m", "--tensor-parallel-size=4", "--master_port", "29501", "--nnodes"]
    assert option(argv, "--tensor-parallel-size", "-tp") == "4"
    assert option(argv, "--master-port") == "29501"
    assert option(argv, "--nnodes") is None and option(argv, "-tp") is None


def test_this_machine_can_be_listed() -> None:
    assert os.getpid() in find(Host(), [os.getpid()])


def test_a_program_that_a_rank_runs_is_known_as_its() -> None:
    """A look at the CPU by a compile worker inherits the rank's environment; what Kubeflow's or Slurm's outer program starts is a rank itself."""
    machine = Machine()
    own = "RANK=1\0WORLD_SIZE=2\0MASTER_PORT=29500\0"
    machine.add(10, 1, f"{PYTHON}\0/venv/bin/torchrun\0train.py", "torchrun")
    machine.add(20, 10, f"{PYTHON}\0train.py", environ=own)
    machine.add(30, 20, f"{PYTHON}\0/venv/torch/_inductor/compile_worker/__main__.py", environ=own)
    machine.add(40, 30, f"{PYTHON}\0-c\0import torch", environ=own)
    machine.add(41, 30, "", "python3", state="Z")
    machine.add(50, 1, f"{PYTHON}\0start.py", environ="SLURM_PROCID=0\0")
    machine.add(51, 50, f"{PYTHON}\0train.py", environ="RANK=0\0WORLD_SIZE=2\0MASTER_PORT=29500\0")
    family = find(machine.host, [10, 40, 41, 51])
    assert {pid: member.below for pid, member in family.items() if member.role == "script"} == {
        20: None,
        40: 20,
        41: 20,
        51: None,
    }
