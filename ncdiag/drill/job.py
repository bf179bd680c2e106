"""One rank of a small gloo job: meets the others, reads a file, computes, reduces, and ends. FAULT says where it goes wrong."""

# mypy: ignore-errors
import ctypes
import datetime
import os
import signal
import time

FAULT, RANK = os.environ.get("FAULT", ""), int(os.environ.get("RANK", "0"))


def load():
    """What each rank does by itself before the first collective."""
    if FAULT == "fifo":
        with open(os.environ["FAULT_FILE"], "rb") as file:
            file.read()
    if FAULT == "slow":
        for _ in range(100):
            with open("/proc/self/exe", "rb") as file:
                file.read(1 << 20)
            time.sleep(0.2)
    if FAULT == "memory":
        time.sleep(3)
        held = []
        for _ in range(64):
            held.append(bytearray(os.urandom(1 << 20)) * 32)
            time.sleep(0.02)
    if FAULT == "raise":
        raise ValueError("the tokenizer of this rank cannot be read: vocab.json is not JSON")


def main():
    """The life of the rank."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives its test
    import torch
    import torch.distributed as dist

    print(f"rank {RANK} starts", flush=True)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=600))
    print(f"rank {RANK} has met the others", flush=True)
    load()
    print(f"rank {RANK} has loaded", flush=True)
    for _ in range(int(os.environ.get("STEPS", "8"))):
        dist.all_reduce(torch.ones(1 << 16))
        time.sleep(0.25)
    print(f"rank {RANK} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
