"""What gateways save the machine that starts the fan-out: real SSH, direct and through a tree of ClusterShell's gateways.

    python benchmarks/tree.py [--nodes 60] [--gateways 4]        (root: it builds network namespaces)

One host stands for some nodes: its sshd answers under many names and addresses. All runs on this machine's cores, so the wall time
shows the whole cost; what a tree is for is the first machine's share of it and its number of connections.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from ncdiag.drill.hosts import lab  # noqa: E402
from ncdiag.drill.sshd import Ssh  # noqa: E402

A_FARM = 14
"""Nodes that one sshd stands for: it listens on 16 addresses at most."""

SCRIPT = """
import resource, sys, threading, time
from ncdiag import registry
from ncdiag.fleet.base import Request
from ncdiag.fleet.ssh import SshFleet
most = [0]
def watch():
    import os
    while True:
        own = 0
        for pid in os.listdir("/proc"):
            try:
                if pid.isdigit() and open("/proc/%s/comm" % pid).read().strip() == "ssh" and open("/proc/%s/stat" % pid).read().split()[3] == str(os.getpid()):
                    own += 1
            except OSError:
                pass
        most[0] = max(most[0], own)
        time.sleep(0.1)
threading.Thread(target=watch, daemon=True).start()
request = Request(registry.load().sources(["platform"]), node_timeout_s=120.0)
started = time.monotonic()
nodes = SshFleet(sys.argv[1], config=sys.argv[2]).collect(request, lambda node, probe: None)
took = time.monotonic() - started
own, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
good = sum(node.unreachable is None for node in nodes)
print("| %d of %d | %.1f | %.1f | %.1f | %d |" % (good, len(nodes), took, own.ru_utime + own.ru_stime, theirs.ru_utime + theirs.ru_stime, most[0]))
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--gateways", type=int, default=4)
    options = parser.parse_args()
    gates = [f"gate{number}" for number in range(1, options.gateways + 1)]
    farms = {
        f"farm{first}": range(first, min(options.nodes, first + A_FARM)) for first in range(0, options.nodes, A_FARM)
    }
    with lab("head", *gates, *farms) as made:
        ssh = Ssh(made)
        names = {f"node{number:03d}": f"10.77.0.{100 + number}" for number in range(options.nodes)}
        table = "".join(f"{address} {name}\n" for name, address in names.items())
        for host in made.hosts.values():
            with open(made.folder / f"{host.name}.hosts", "a") as file:
                file.write(table)
        for name in gates:
            ssh.serve(made[name])
        known = []
        for farm, numbers in farms.items():
            own = {f"node{number:03d}": names[f"node{number:03d}"] for number in numbers}
            made[farm].mount("\n".join(f"ip addr add {address}/24 dev eth0" for address in own.values()))
            ssh.serve(made[farm], extra="\n".join(f"ListenAddress {address}" for address in own.values()))
            key = " ".join((made.folder / f"{farm}.key.pub").read_text().split()[:2])
            known += [f"{name},{address} {key}\n" for name, address in own.items()]
        with open(made.folder / "known", "a") as file:
            file.writelines(known)
        topology = made.folder / "topology.conf"
        span = f"node[000-{options.nodes - 1:03d}]"
        topology.write_text(f"[routes]\nhead: gate[1-{options.gateways}]\ngate[1-{options.gateways}]: {span}\n")
        print(f"{options.nodes} nodes, {options.gateways} gateways, {os.cpu_count()} cores for all of it\n")
        print(
            "| way | answered | wall s | own CPU s | CPU s of the ssh started here | most ssh at a time |\n|---|---|---|---|---|---|"
        )
        for way, extra in (
            ("direct", {}),
            ("tree", {"NCDIAG_TOPOLOGY": str(topology), "CLUSTERSHELL_GW_PYTHON_EXECUTABLE": sys.executable}),
        ):
            done: subprocess.CompletedProcess[str] = made["head"].run(
                sys.executable,
                "-c",
                SCRIPT,
                f"{span}",
                str(ssh.config),
                env={"PYTHONPATH": str(ROOT), **extra},
                timeout_s=400,
            )
            print(f"| {way} {done.stdout.strip() or done.stderr.strip()[-300:]}", flush=True)


if __name__ == "__main__":
    main()
