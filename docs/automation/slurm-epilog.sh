#!/bin/bash
# slurm.conf: Epilog=/etc/slurm/epilog.d/ncdiag.sh
# An epilog that fails drains the node. Left-over processes and full disks are what a job leaves behind.
set -u
# Slurm gives epilogs no PATH: without this line ncdiag would not be found, and every node would pass.
export PATH=/opt/ncdiag/bin:/usr/local/bin:/usr/bin:/bin
out=/var/log/ncdiag/epilog-${SLURM_JOB_ID:-0}.json
mkdir -p "${out%/*}"
timeout 60 ncdiag -q preflight --format json -o "$out" --only leftover-processes --only temp-space --only shm
code=$?
case $code in
    1) ;;
    0 | 3) exit 0 ;;
    *) logger -t ncdiag "job ${SLURM_JOB_ID:-0}: the node was not judged (exit $code)"; exit 0 ;;
esac
logger -t ncdiag "job ${SLURM_JOB_ID:-0} left something behind, see $out"
exit 1
