#!/bin/bash
# What this machine says of itself, and what ncdiag says of it: machine.sh FOLDER
out=$1; mkdir -p "$out"; cd "$(dirname "$0")/../.." || exit 1
say() { name=$1; shift; timeout 60 "$@" >"$out/$name" 2>&1; }
say nvidia-smi.txt nvidia-smi
say nvidia-smi-q.txt nvidia-smi -q
say topo-m.txt nvidia-smi topo -m
for kind in r w n a p; do say "topo-p2p-$kind.txt" nvidia-smi topo -p2p $kind; done
say nvlink-s.txt nvidia-smi nvlink -s
say machine.txt sh -c 'uname -a; lscpu; free -g; df -h / /dev/shm /tmp; ulimit -a; ls -la /dev/nvidia* /dev/infiniband; ls /sys/class/net /sys/class/infiniband; cat /proc/driver/nvidia/version; command -v gcc ip nft iptables nsenter unshare gdb strace'
say dmesg.txt sh -c 'dmesg | tail -200'
say versions.txt python3 -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version(), torch.cuda.device_count()); print([torch.cuda.can_device_access_peer(0, n) for n in range(1, torch.cuda.device_count())])'
say preflight.txt python3 -m ncdiag -v preflight
say preflight.json python3 -m ncdiag -q preflight --format json
say collect.json python3 -m ncdiag -q collect
say record.txt python3 -m ncdiag collect --record -o "$out/tree.tar.gz"
say topo-live.txt python3 -m ncdiag topo live
