"""Read-only commands: what is allowed, what is refused, and that the tools know the flags."""

from __future__ import annotations

import re
import shutil

import pytest

from ncdiag.host import Host, TimedOut
from ncdiag.playbook.commands import PROGRAMS, refusal
from ncdiag.playbook.loader import load, names
from ncdiag.playbook.schema import RemedyStep, RunStep

ALLOWED = """
ip -br addr show
ip route get 192.0.2.1
ip -s link show dev eth0
ip -d link show type bond
ss -tnp state syn-sent
nvidia-smi
nvidia-smi -q -d CLOCK,PERFORMANCE
nvidia-smi --query-gpu=index,clocks.sm --format=csv,noheader,nounits
nvidia-smi topo -p2p r
cat /proc/cmdline
cat /sys/module/nvidia_peermem/version /etc/nccl.conf
ls -l /dev/infiniband
df -h /dev/shm
systemctl status --no-pager nvidia-fabricmanager
journalctl -k --no-pager -n 200
dmesg -T --level=err,warn
ps -e -o pid,ppid,stat,args --sort=-rss
ray status
ray list placement-groups
rdma statistic show
setpci -s 0000:00:01.0 ECAP_ACS+0x6.w
sysctl -n net.ipv4.ip_local_port_range
date -u +%s
hostname
kubectl get pods -n vllm -o wide
scontrol show job 12
findmnt -T /models
""".strip().splitlines()

REFUSED = """
sh -c id
bash
python3 -c id
env
timeout 5 sh
/bin/cat /etc/hosts
nsenter -t 1 -a id
ip link set eth0 down
ip -batch /tmp/x
ip -force addr show
ip netns exec a id
ip -n a addr show
ip route add default via 192.0.2.1
ip addr flush dev eth0
ip neigh flush all
nvidia-smi -pl 100
nvidia-smi -r
nvidia-smi --gpu-reset -i 0
nvidia-smi -q -f /tmp/x
nvidia-smi -pm 1
nvidia-smi -lgc 100
nvidia-smi -l 1
nvidia-smi nvlink -sc 0bz
cat
cat -
cat relative
cat /etc/shadow
cat /root/.ssh/id_rsa
cat /home/a/.netrc
cat /proc/1/environ
cat /proc/self/root/etc/shadow
cat /proc/self/task/1/fd/3
cat /proc/self/cwd/secret
cat /proc/1/mem
cat /proc/../etc/shadow
cat /proc//self/limits/../environ
cat /sys/../etc/shadow
cat /sys/kernel/debug/x
cat /sys/kernel/tracing/trace_pipe
cat /proc/kmsg
cat /proc/kcore
cat /proc/sysrq-trigger
ls /root
ls /proc/1/cwd
ls -R /
ss -K
ss --kill
ss -D /tmp/x
ss -F /tmp/x
ss -N other
date -s 2030-01-01
date --set=x
hostname evil
dmesg -c
dmesg -C
dmesg -w
journalctl -f
journalctl --rotate
journalctl --vacuum-time=1s
journalctl -D /tmp/x
systemctl restart x
systemctl stop x
systemctl -H other status x
chronyc makestep
timedatectl set-ntp true
nft flush ruleset
nft -f /tmp/x
iptables -F
iptables -A INPUT -j DROP
iptables -Z
sysctl -w net.ipv4.ip_forward=1
sysctl net.ipv4.ip_forward=1
sysctl -p /tmp/x
ray stop
ray start --head
scontrol update NodeName=a
kubectl delete pod a
kubectl get secrets
kubectl exec a
kubectl get pods --kubeconfig /tmp/x
docker run a
docker exec a id
pip install a
pip list --index-url http://x
setpci -s 00:01.0 ECAP_ACS+0x6.w=0000
ethtool -s eth0 speed 1
ethtool -K eth0 gro off
ethtool -E eth0
mlnx_qos -i eth0 --pfc 1
rdma link add rxe0
rdma statistic set link a
rdma system set netns exclusive
lspci -F /etc/shadow
numactl --membind=0 id
findmnt --poll
modinfo /tmp/evil.ko
getent shadow
getent passwd root
ps auxe
ps -e -o pid e
df -h ../x
nvidia-smi -L;id
cat /proc/cmdline|sh
cat $(id)
cat /proc/*/environ
ncclras -h x;id
vllm serve m
ufw enable
firewall-cmd --reload
show_gids -x
""".strip().splitlines()


@pytest.mark.parametrize("command", ALLOWED)
def test_allowed(command: str) -> None:
    assert refusal(command.split()) is None


@pytest.mark.parametrize("command", REFUSED)
def test_refused(command: str) -> None:
    assert refusal(command.split()), command


@pytest.mark.parametrize(
    "argv", [["cat", "/etc/hosts /etc/shadow"], ["cat", ""], ["cat", "/etc/hosts\n"], ["df", "-h\n"], ["ip addr"]]
)
def test_arguments_with_white_space_are_refused(argv: list[str]) -> None:
    assert refusal(argv)


def test_no_program_on_the_list_runs_others() -> None:
    starts_others = {
        "sh",
        "bash",
        "env",
        "xargs",
        "find",
        "sudo",
        "ssh",
        "nsenter",
        "unshare",
        "timeout",
        "python3",
        "awk",
        "sed",
        "tar",
    }
    assert not starts_others & set(PROGRAMS)


def _commands() -> list[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name in names():
        for step in load(name).steps:
            if isinstance(step, RunStep):
                found.add(tuple(step.run))
            if isinstance(step, RemedyStep) and step.verify.run:
                found.add(tuple(step.verify.run))
    return sorted(found)


_USAGE = re.compile(
    r"unrecognized option|invalid option|unknown option|is unknown, try|usage:|no such option|unknown command|bad argument",
    re.I,
)


@pytest.mark.parametrize("argv", _commands(), ids=" ".join)
def test_the_tools_know_the_flags(argv: tuple[str, ...]) -> None:
    """Real tools where they are installed; a machine without the device may refuse, but not because of the flags."""
    if argv[0] == "ray" or shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed here (ray: slow to start)")
    try:
        output = Host().run(argv, 20)
    except TimedOut:
        pytest.skip(f"{argv[0]} did not answer here")
    assert not _USAGE.search(output.err), output.err
