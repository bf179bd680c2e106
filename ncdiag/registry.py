"""Finds the probes: every file of `ncdiag.probes`, and those of the user's own folders. Travels to nodes."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import pkgutil
import sys
from types import ModuleType
from typing import Callable, Dict, Iterable, List, Sequence

from ncdiag.model import Probe


class ProbeSet(Dict[str, Probe]):
    """Probe id -> probe, in the order of their ids. `broken` holds files that could not be loaded: id -> reason."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: Dict[str, str] = {}

    def chosen(self, only: Sequence[str] = (), without: Sequence[str] = ()) -> ProbeSet:
        """The probes named in `only` (all when empty), less those in `without`. Raises KeyError with the unknown name."""
        for name in (*only, *without):
            if name not in self and name not in self.broken:
                raise KeyError(name)
        out = ProbeSet()
        out.update((name, probe) for name, probe in self.items() if (not only or name in only) and name not in without)
        out.broken = {
            name: reason for name, reason in self.broken.items() if (not only or name in only) and name not in without
        }
        return out

    def sources(self, wanted: Iterable[str]) -> List[Probe]:
        """Probes whose facts the wanted ones need, themselves included, each once."""
        todo: List[str] = list(wanted)
        seen: Dict[str, Probe] = {}
        while todo:
            name = todo.pop()
            if name in self and name not in seen:
                seen[name] = self[name]
                todo.extend(self[name].needs)
        return [seen[name] for name in sorted(seen) if seen[name].collect is not None]


def load(folders: Sequence[str] = ()) -> ProbeSet:
    """All probes of the package and of `folders`. A file that cannot be loaded is in `broken`, the others are complete.

    Raises FileNotFoundError for a folder that is not there, and for a missing `ncdiag/probes` (a broken link in the checkout).
    """
    try:
        package = importlib.import_module("ncdiag.probes")
    except ImportError as error:
        raise FileNotFoundError(
            "ncdiag/probes is missing; it is a link to ../probes that must exist in the checkout"
        ) from error
    found = ProbeSet()
    for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
        _take(found, name, functools.partial(importlib.import_module, "ncdiag.probes." + name))
    for folder in folders:
        if not os.path.isdir(folder):
            raise FileNotFoundError("%s: no such folder of probes" % folder)
        for file in sorted(os.listdir(folder)):
            if file.endswith(".py") and not file.startswith("_"):
                path = os.path.join(folder, file)
                _take(found, file[:-3], functools.partial(_load_file, path))
    return found


def _take(found: ProbeSet, name: str, loader: Callable[[], ModuleType]) -> None:
    identity = name.replace("_", "-")
    try:
        probe = loader().PROBE
        if not isinstance(probe, Probe):
            raise TypeError("PROBE is a %s, not a Probe" % type(probe).__name__)
        if probe.id != identity:
            raise ValueError("its id is %r; by its file name it is %r" % (probe.id, identity))
    except Exception as error:
        found.broken[identity] = "%s: %s" % (type(error).__name__, error)
        return
    found[identity] = probe


def _load_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise ImportError("%s is not a regular file" % path)
    name = "ncdiag_user_probe_" + os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("%s cannot be loaded" % path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
