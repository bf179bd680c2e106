#!/bin/bash
# slurm.conf: Prolog=/etc/slurm/prolog.d/ncdiag.sh, PrologEpilogTimeout=150
# A prolog that fails drains the node and requeues the job, so only a finding of weight (exit 1) may fail it.
set -u
# Slurm gives prologs no PATH: without this line ncdiag would not be found, and every node would pass.
export PATH=/opt/ncdiag/bin:/usr/local/bin:/usr/bin:/bin
out=/var/log/ncdiag/prolog-${SLURM_JOB_ID:-0}.json
mkdir -p "${out%/*}"
timeout 60 ncdiag -q preflight --format json -o "$out" \
    --only shm --only limits --only rdma-port --only gpu-health --only leftover-processes
code=$?
case $code in
    1) ;;
    0 | 3) exit 0 ;;
    *) logger -t ncdiag "job ${SLURM_JOB_ID:-0}: the node was not judged (exit $code)"; exit 0 ;;
esac
timeout 60 ncdiag -q playbook run --from "$out" --limit 50 -o "${out%.json}.md"
logger -t ncdiag "job ${SLURM_JOB_ID:-0}: node is not fit, see ${out%.json}.md"
exit 1
