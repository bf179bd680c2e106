"""What the files beside config.json say: total bytes and parameters, from safetensors indexes and headers.

A header is a little-endian 64-bit length and that much JSON: {name: {"dtype", "shape", "data_offsets"}}. Only headers
are read, never the data. Source: the safetensors format description.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncdiag.nodeset import counted
from ncdiag.sizing.config import ConfigError, read_json

MAX_INDEX_BYTES = 256 * 2**20
MAX_HEADER_BYTES = 100 * 2**20  # the format's own limit
PACKED = ("U8", "I32", "I64", "U32", "U64", "I8", "I16", "U16")
INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")


@dataclass(frozen=True)
class Checkpoint:
    """The files' own figures. parameters is None where packed (quantised) tensors hide the count."""

    total_bytes: int
    parameters: int | None
    source: str  # "index": metadata.total_size; "headers": summed over the files; "files": sizes of .bin files
    notes: tuple[str, ...] = ()


def read_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """(the figures or None where there are no weights, warnings). A broken file is a warning, not an error."""
    warnings: list[str] = []
    files = sorted(folder.glob("*.safetensors"))
    for name in INDEXES:
        if (folder / name).is_file():
            found = _from_index(folder / name, files, warnings)
            if found:
                return found, warnings
    files = [file for file in files if not file.name.startswith("consolidated")] or files
    if files:
        found = _from_headers(files, warnings)
        if found:
            return found, warnings
    binaries = sorted(folder.glob("pytorch_model*.bin"))
    if binaries:
        total = sum(file.stat().st_size for file in binaries)
        return Checkpoint(total, None, "files", (f"{len(binaries)} pytorch_model .bin files: their size is taken",)), []
    return None, warnings


def _from_index(path: Path, files: list[Path], warnings: list[str]) -> Checkpoint | None:
    try:
        data = read_json(path, MAX_INDEX_BYTES)
    except ConfigError as error:
        warnings.append(f"{error}; it is left out")
        return None
    metadata = data.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    total = metadata.get("total_size")
    if isinstance(total, float) and total == total and abs(total) < 2**62 and total == int(total):
        total = int(total)
    if isinstance(total, bool) or not isinstance(total, int) or total <= 0:
        warnings.append(f"{path.name} has no metadata.total_size; the files' headers are read")
        return None
    weight_map = data.get("weight_map")
    named = {name for name in weight_map.values() if isinstance(name, str)} if isinstance(weight_map, dict) else set()
    here = {file.name for file in files}
    missing = sorted(named - here) if here else []
    if missing:
        warnings.append(
            f"{len(missing)} of {counted(len(named), 'file')} of {path.name} {'is' if len(missing) == 1 else 'are'} not here, the first is {missing[0]!r}"
        )
    parameters = metadata.get("total_parameters")
    if isinstance(parameters, bool) or not isinstance(parameters, int) or parameters <= 0:
        wanted = [file for file in files if file.name in named]
        read = _from_headers(wanted, []) if wanted and not missing else None
        parameters = read.parameters if read else None
    return Checkpoint(total, parameters, "index")


def _from_headers(files: list[Path], warnings: list[str]) -> Checkpoint | None:
    total, parameters, packed = 0, 0, False
    for file in files:
        try:
            header = read_header(file)
        except ConfigError as error:
            warnings.append(f"{error}; it is left out")
            return None
        for name, tensor in header.items():
            if name == "__metadata__" or not isinstance(tensor, dict):
                continue
            numel, size = _tensor(tensor)
            total, parameters = total + size, parameters + numel
            packed = packed or tensor.get("dtype") in PACKED
    return Checkpoint(total, None if packed else parameters, "headers")


def read_header(path: Path) -> Mapping[str, Any]:
    """The header of one safetensors file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= MAX_HEADER_BYTES:
                hint = "a Git LFS pointer" if start.startswith(b"version") else "not a safetensors file"
                raise ConfigError(f"{path} is {hint}")
            header = json.loads(file.read(length))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path} has a broken safetensors header") from None
    if not isinstance(header, dict):
        raise ConfigError(f"{path} has a broken safetensors header")
    return header


def _tensor(tensor: Mapping[str, Any]) -> tuple[int, int]:
    """(numbers, bytes) of one header entry; 0 where it is malformed."""
    numel = 1
    shape, offsets = tensor.get("shape"), tensor.get("data_offsets")
    for size in shape if isinstance(shape, list) else [0]:
        numel *= size if isinstance(size, int) and size >= 0 else 0
    if isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(value, int) for value in offsets):
        return numel, max(offsets[1] - offsets[0], 0)
    return numel, 0
