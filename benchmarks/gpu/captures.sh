#!/bin/bash
# Everything in one call on a machine with one or two GPUs, root, PyTorch and pyroute2: captures.sh FOLDER PART…
# Parts, each with its time limit in seconds: machine, nccl=SECONDS, vllm=SECONDS. Cases: NCCL_CASES, ENGINE_CASES; vLLM: ENGINE_PROGRAM, ENGINE_MODEL.
# The results are archives in FOLDER, at most 15 MB each, also when the time runs out.
out=$(mkdir -p "$1" && cd "$1" && pwd); shift; here=$(cd "$(dirname "$0")" && pwd)
pack() { for part in machine nccl vllm; do [ -d "$out/$part" ] && tar cz -C "$out" "$part" | split -b 15000000 -d - "$out/$part.tar.gz." && rm -rf "${out:?}/$part"; done; }
trap pack EXIT
export PYTHONUNBUFFERED=1
python3 -c 'import torch; torch.ones(1, device="cuda")' &      # the first import of a fresh machine is slow; let it not count for a case
for part in "$@"; do
  limit=${part#*=}
  case $part in
    machine) bash "$here/machine.sh" "$out/machine"; echo "machine: $SECONDS s";;
    nccl=*) timeout -k 5 $((limit + 70)) python3 "$here/nccl_captures.py" "$out/nccl" $NCCL_CASES --until "$limit" 2>&1; echo "nccl: $SECONDS s";;
    vllm=*) timeout -k 5 $((limit + 150)) python3 "$here/vllm_captures.py" "$out/vllm" $ENGINE_CASES --model "$ENGINE_MODEL" --vllm "$ENGINE_PROGRAM" --until "$limit" 2>&1; echo "vllm: $SECONDS s";;
  esac
done
