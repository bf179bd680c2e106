"""The lab by hand: python -m tests.lab up|fault|matrix …

    up [--hosts N] [--shape SHAPE]   hosts with sshd (and Ray), an engine ready to be started on them, until Ctrl-C
    fault NAME [--hold]              breaks a start, and shows what ncdiag makes of it; --hold: call and truth at once, hosts until Ctrl-C
    matrix …                         many faults in a row, as `python -m tests.lab.matrix`

Needs root, and NCDIAG_LAB_PYTHON for the engines. `ncdiag drill` is the same for people who do not want to know the answer yet.
"""

from __future__ import annotations

import argparse
import string
import sys
from collections.abc import Sequence

from ncdiag.drill import lead, needs, rays, shell
from ncdiag.drill.bench import Bench, NotSet, bench
from ncdiag.drill.engines import make_model

from . import matrix

SHAPES = {
    "gloo": ("gloo", "tensor-parallel-size"),
    "tp2": ("tp2", "tensor-parallel-size"),
    "pp2": ("tp2", "pipeline-parallel-size"),
    "nodes": ("nodes", "tensor-parallel-size"),
    "nodes-tp2": ("nodes", "tensor-parallel-size"),
    "nodes-pp2": ("nodes", "pipeline-parallel-size"),
    "ray": ("ray", "tensor-parallel-size"),
    "ray-tp2": ("ray", "tensor-parallel-size"),
    "ray-pp2": ("ray", "pipeline-parallel-size"),
}
"""Name -> the bench's shape, and which parallel size is 2."""
LEAST = {"nodes": 2}
MOST = 8


def up(number: int, name: str, show: lead.Show) -> None:
    """Hosts as nothing is broken, until a signal ends it. Raises Refused."""
    shape, parallel = SHAPES[name]
    if not LEAST.get(shape, 1) <= number <= MOST:
        raise lead.Refused(f"the shape {name} takes {LEAST.get(shape, 1)} to {MOST} hosts, not {number}")
    missing = needs.missing(shape)
    if missing:
        raise lead.Refused("this machine cannot run this:\n" + "\n".join(f"  - {reason}" for reason in missing))
    names = string.ascii_lowercase[:number]
    with bench(shape, names=names, sshd=names) as made:
        made.parallel = dict.fromkeys(names, parallel)
        _equip(made, names)
        shell.write(made)
        made.hosts.record.title = name
        made.hosts.record.save()
        for host in made.hosts.hosts.values():
            show.say(f"  {host.name}  {host.address}")
        show.say(
            f"  SSH among them: ssh -F {made.ssh.config} {names[-1]}; --nodes ssh:{','.join(names)} --ssh-config {made.ssh.config}\n"
        )
        lead.stay(made, show)


def _equip(made: Bench, names: str) -> None:
    """What the shape needs beside the hosts."""
    if made.shape == "gloo":
        for host in names:
            made.env[host]["WORLD_SIZE"] = str(len(names))
        return
    made.model = make_model(made.hosts.folder / "model")
    if made.shape == "ray":
        environments = {host: made.environment(host) for host in names}
        rays.start(made.hosts, *names, gpus=1 if len(names) > 1 else 2, environments=environments)


def main(argv: Sequence[str]) -> int:
    if argv[:1] == ["matrix"]:
        return matrix.main(argv[1:])
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="up|fault|matrix")
    up_options = commands.add_parser("up")
    up_options.add_argument("--hosts", type=int, default=2, metavar="N", help=f"1 to {MOST}; default: 2")
    up_options.add_argument("--shape", choices=sorted(SHAPES), default="gloo", help="default: gloo")
    fault_options = commands.add_parser("fault")
    fault_options.add_argument("name", help="name or number; see: ncdiag drill --list --spoil")
    fault_options.add_argument("--hold", action="store_true", help="do not ask ncdiag; leave the hosts up until Ctrl-C")
    options = parser.parse_args(argv)
    show = lead.Show()
    lead.end_on_signals()
    try:
        if options.command == "up":
            up(options.hosts, options.shape, show)
        chosen = lead.choose(options.name, None, 0)
        lead.check(chosen)
        if not options.hold:
            return lead.solve(chosen, 0, show, lambda result, text: None)
        lead.hold(chosen, show)
    except lead.Refused as error:
        parser.error(str(error))
    except NotSet as error:
        parser.exit(3, f"this fault could not be set, so nothing can be said about it: {error}\n")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
