"""Imports in standby what an earlier run of the program has imported."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from . import environment

_SITES = ("/site-packages/", "/dist-packages/")


def attributes(module: Any) -> dict[str, Any]:
    """Return a module's attributes, without running code of the module."""
    try:
        found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return found


def file_of(module: Any) -> str:
    """Return the file of a module; "" if it has none."""
    spec = attributes(module).get("__spec__")
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) and os.sep in origin else ""


def is_installed(package: str) -> bool:
    """Return whether a package is in site-packages, so not one of the program's own."""
    if package in sys.stdlib_module_names:
        return False
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    return all(is_third_party(f"{place}/") for place in places)


def is_third_party(origin: str) -> bool:
    return any(site in origin for site in _SITES)


_REST = 4
"""Seconds of rest for each second of CPU, while the training process needs the CPU."""
_MOST_REST_SECONDS = 1.0
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel")
_STANDARD = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 (pathlib would be one more import)


def recorded(
    imports: list[dict[str, Any]],
    start: dict[str, str],
    stop: Callable[[str], None],
    *,
    rests: bool,
) -> list[Segment]:
    """Import the modules of an import list, and record the variables that they read.

    `stop`: ends this process, which has taken something that the training may need.
    """
    between = _Between(stop, rests=rests)
    sys.meta_path.insert(0, between)
    segments = [Segment(part, start) for part in imports]
    sys.meta_path.remove(between)
    return segments


class Segment:
    """Modules that were imported one after another in the same environment."""

    def __init__(self, part: dict[str, Any], start: dict[str, str]) -> None:
        """Import them; `start`: the environment of this process at its start."""
        environment.apply(part["changes"])
        if part["path"] is not None:
            sys.path[:] = part["path"]
        before = dict(os.environ)
        known = set(sys.modules)
        self.names: list[str] = part["modules"]
        self.changes = environment.changes(start, before)
        """The variables that the program changes before it imports them."""
        self.path = list(sys.path)
        installed = [name for name in self.names if is_installed(name.partition(".")[0])]
        with environment.recording():
            for name in installed:
                # What it raises is raised again where the program imports it.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        self.own_changes = environment.changes(before, dict(os.environ))
        """The variables that the import of these modules changes."""
        self.path_after = list(sys.path)
        self.modules: dict[str, Any] = {
            name: module
            for name, module in list(sys.modules.items())
            if name not in known and name.partition(".")[0] not in sys.stdlib_module_names
        }


class _Between:
    """What a process does before each module: it gives up its GPU, and leaves the CPU to others."""

    def __init__(self, stop: Callable[[str], None], *, rests: bool) -> None:
        self._stop = stop
        self._rests = rests
        self._used = time.process_time()

    def find_spec(self, _name: str, _path: Any = None, _target: Any = None) -> None:
        if gpu := _opened_gpu():
            self._stop(_OPENS.format(gpu))
        if self._rests:
            used = time.process_time()
            time.sleep(min(_REST * (used - self._used), _MOST_REST_SECONDS))
            self._used = time.process_time()


def problem(segments: list[Segment]) -> str:
    """Return why this process must not be used, or ""."""
    for segment in segments:
        for name, module in segment.modules.items():
            origin = file_of(module)
            if origin and not is_third_party(origin) and not origin.startswith(_STANDARD):
                return f"importing {segment.names[0]} imports {name} from {origin}"
    opened = _opened_gpu() or _opened_socket()
    return _OPENS.format(opened) if opened else ""


_OPENS = "importing its modules opens {}"
_NETWORK = ("tcp", "tcp6", "udp", "udp6")


def _opened() -> list[str]:
    """Return what the descriptors of this process lead to."""
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the descriptor of this listing
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
    return found


def _opened_gpu() -> str:
    return next((target for target in _opened() if target.startswith(_GPUS)), "")


def _opened_socket() -> str:
    """Return a socket that is a connection or a port, which the training would have twice."""
    own = {target for target in _opened() if target.startswith("socket:[")}
    for kind in _NETWORK if own else ():
        try:
            with open(f"/proc/self/net/{kind}") as file:  # noqa: PTH123
                rows = [line.split() for line in file][1:]
        except OSError:
            continue  # a kernel without IPv6
        if any(f"socket:[{row[9]}]" in own for row in rows):
            return f"a network socket ({kind})"
    return ""
