"""Lays an environment of packages as pip leaves it: metadata folders beside an interpreter."""

from __future__ import annotations

from pathlib import Path


def environment(
    folder: Path, packages: dict[str, str], requires: dict[str, list[str]] | None = None, python: str = "3.11.7"
) -> str:
    """Returns the path of its interpreter; `packages` is distribution -> version."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_bytes(b"\x7fELF")
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    for name, version in packages.items():
        metadata = (
            folder
            / "lib"
            / f"python{python.rpartition('.')[0]}"
            / "site-packages"
            / f"{name.replace('-', '_')}-{version}.dist-info"
        )
        metadata.mkdir(parents=True)
        lines = [f"Requires-Dist: {line}" for line in (requires or {}).get(name, [])]
        (metadata / "METADATA").write_text(
            "\n".join([f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *lines])
            + "\n\nRequires-Dist: not-this\n"
        )
    return str(folder / "bin" / "python")
