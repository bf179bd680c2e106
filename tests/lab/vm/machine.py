"""Boots the machine once, with one job in it, and waits for its end."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ncdiag import payload
from tests.lab.vm import initramfs
from tests.lab.vm.kernel import Kernel, NotHere

HERE = Path(__file__).parent
LIMIT_S = 540
MEMORY_MB = 640
SIGN_OF_LIFE_S = 20


def run(folder: Path, kernel: Kernel) -> Path:
    """Runs `guest.py` in the machine; gives the folder of what it left (`result.json`, `log`, trees). Raises NotHere."""
    image = folder / "initramfs.cpio"
    initramfs.build(image, kernel, _sources(), {"init": (HERE / "init.sh").read_bytes(), "lab/payload.zip": _payload()})
    out = folder / "out"
    out.mkdir()
    for accelerator in ("kvm", "tcg") if _kvm() else ("tcg",):
        console = _boot(image, kernel, out, accelerator, folder / "console")
        if (out / "alive").exists():
            return out
    raise NotHere(f"the machine did not start: {console[-500:]}")


def _sources() -> dict[str, bytes]:
    """What the job imports of ncdiag, with every probe; and the job."""
    probes = payload.probe_files()
    start = ["ncdiag.record", "ncdiag.collect", "ncdiag.registry", "ncdiag.nccl.gid", "ncdiag.reach.agent"]
    for path in probes.values():
        start += payload._imports(path, "ncdiag.probes")
    found = {
        f"lab/{os.path.relpath(path, os.path.dirname(payload.ROOT))}": path for path in payload.modules(start).values()
    }
    found = {place: path for place, path in found.items() if not place.startswith("lab/ncdiag/probes/")}
    found.update({f"lab/{place}": path for place, path in probes.items()})
    found["lab/guest.py"] = str(HERE / "guest.py")
    found["lab/tests/lab/vm/agents.py"] = str(HERE / "agents.py")
    return {place: Path(path).read_bytes() for place, path in found.items()}


def _payload() -> bytes:
    return payload.pack(request={"budget_s": 30})


def _kvm() -> bool:
    """A /dev/kvm without vmx or svm is another hypervisor's, in which this kernel does not live."""
    try:
        flags = re.search(r"^flags\s*:.*\b(vmx|svm)\b", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        return False
    return flags is not None and os.access("/dev/kvm", os.R_OK | os.W_OK)


def _boot(image: Path, kernel: Kernel, out: Path, accelerator: str, console: Path) -> str:
    """Until the machine is off. With KVM one that shows no sign of life is ended early. Gives its console's text."""
    fast = accelerator == "kvm"
    command = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "q35",
        "-accel", "kvm" if fast else "tcg,thread=multi,tb-size=256", "-cpu", "host" if fast else "max",
        "-smp", "2", "-m", str(MEMORY_MB), "-kernel", str(kernel.image), "-initrd", str(image),
        "-append", "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check mitigations=off random.trust_cpu=on net.ifnames=0",
        "-serial", "stdio", "-device", "virtio-rng-pci", "-virtfs", f"local,path={out},mount_tag=out,security_model=none,id=out",
    ]  # fmt: skip
    with console.open("wb") as text:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=text, stderr=subprocess.STDOUT)
        try:
            process.wait(SIGN_OF_LIFE_S if fast else LIMIT_S)
        except subprocess.TimeoutExpired:
            if fast and (out / "alive").exists():
                process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()
    return console.read_text(errors="replace")
