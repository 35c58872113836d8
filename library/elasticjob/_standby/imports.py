"""Reports what the program imports, and gives it the modules that were imported before."""

from __future__ import annotations

import _thread
import contextlib
import copy
import fcntl
import importlib.machinery
import json
import os
import sys
from typing import Any, NoReturn

from . import environment
from .preparation import Segment, attributes, is_installed

_PIPE_BYTES = 1 << 20


class Reporter:
    """Writes messages to the agent, and never waits for it."""

    def __init__(self, number: int, index: int | None) -> None:
        """Begin; `index`: of a process among those that torchrun starts, None for any other."""
        self._number = number
        self.index = index
        self._identity = _identity(number)
        self.is_open = True
        os.set_blocking(number, False)
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, message: dict[str, Any]) -> None:
        if self.index is not None:
            message = {**message, "index": self.index}
        data = json.dumps(message).encode() + b"\n"
        # The program may have closed all descriptors, and opened a file with this number.
        if self.is_open and _identity(self._number) == self._identity:
            try:
                if os.write(self._number, data) == len(data):
                    return
            except OSError:
                pass
        self.is_open = False  # the agent has gone, or does not read

    def close(self) -> None:
        if self.is_open and _identity(self._number) == self._identity:
            os.close(self._number)
        self.is_open = False


def _identity(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


_IMPORTING = "_find_and_load_unlocked"
"""The function of importlib that calls finders for an import, and not only to look for a module."""
_MACHINERY = ("__spec__", "__loader__", "__package__", "__path__", "__file__", "__cached__")


class Imports:
    """Reports what the program imports, and gives it the modules that were imported before."""

    def __init__(self, reporter: Reporter, command: list[str]) -> None:
        self.reporter = reporter
        self.segments: list[Segment] = []
        self._command = command
        self._folder = os.getcwd()  # noqa: PTH109
        self._pid = os.getpid()
        self._lock = _thread.RLock()
        self._installed: dict[str, bool] = {}
        self._environment: dict[str, str] = {}
        self._seen: dict[str, str] = {}
        self._path: list[str] = []

    def begin(self) -> None:
        """Begin, with the environment of the program's start."""
        self._environment = dict(os.environ)
        self._seen = self._environment
        self._path = list(sys.path)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Return how a hidden module is imported; None for any other."""
        if self.reporter.is_open and self._is_imported_by_the_program(name, sys._getframe(2)):
            self._report(name)
        for segment in self.segments:
            if name in segment.modules:
                module = segment.modules[name]
                return _spec(name, module, _Revealing(self, name, module))
        return None

    def reveal(self, name: str) -> None:
        """Let the program see the modules that were imported up to the one that it imports now."""
        with self._lock:
            found = [at for at, part in enumerate(self.segments) if name in part.modules]
            revealed = self.segments[: found[0] + 1] if found else []
            if os.getpid() == self._pid:
                for segment in revealed:
                    self._check(segment)
            del self.segments[: len(revealed)]
            for segment in revealed:
                sys.modules.update(segment.modules)
                environment.apply(segment.own_changes)
                sys.path[:] = segment.path_after
                self._seen = dict(os.environ)
                self._path = list(sys.path)
                self.reporter.send({"modules": segment.names})

    def _is_imported_by_the_program(self, name: str, frame: Any) -> bool:
        """Return whether a module of site-packages is imported, and not while another one is."""
        if frame.f_code.co_name != _IMPORTING or not self._is_installed(name):
            return False
        while (frame := frame.f_back) is not None:
            if frame.f_code.co_name == _IMPORTING:
                outer = frame.f_locals["name"]
                # The package of a module is imported first, and may import the module itself.
                if self._is_installed(outer) and not outer.startswith(f"{name}."):
                    return False
        return True

    def _is_installed(self, name: str) -> bool:
        package = name.partition(".")[0]
        if package not in self._installed:
            self._installed[package] = is_installed(package)
        return self._installed[package]

    def _report(self, name: str) -> None:
        """Report a module that the program imports now."""
        now = dict(os.environ)
        if now != self._seen or sys.path != self._path:
            changes = environment.changes(self._seen, now)
            path = None if sys.path == self._path else list(sys.path)
            self._seen = now
            self._path = list(sys.path)
            self.reporter.send({"changes": changes, "path": path})
        self.reporter.send({"modules": [name]})

    def _check(self, segment: Segment) -> None:
        """Start the command again if a cold process would import these modules otherwise."""
        changed, removed = segment.changes
        expected = {**self._environment, **changed}
        for name in removed:
            expected.pop(name, None)
        now = dict(os.environ)
        different = [name for name in {**expected, **now} if expected.get(name) != now.get(name)]
        if different:
            self.start_again(
                f"it sets {', '.join(sorted(different)[:3])} to another value before it imports "
                f"{segment.names[0]} than in its earlier run"
            )
        if sys.path != segment.path:
            self.start_again(
                f"sys.path is not that of its earlier run when it imports {segment.names[0]}"
            )
        for name in segment.modules:
            if name in sys.modules:
                self.start_again(f"it has put another module in the place of {name}")

    def start_again(self, problem: str) -> NoReturn:
        """Replace this process by a new Python that runs the command; report the problem."""
        self.reporter.send({"problem": problem})
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.chdir(self._folder)
        os.execvpe(self._command[0], self._command, self._environment)  # noqa: S606


class _Revealing:
    """A loader of one hidden module; in all else it is the module's own loader."""

    def __init__(self, imports: Imports, name: str, module: Any) -> None:
        self._imports = imports
        self._name = name
        self._module = module
        own = attributes(module)
        self._kept = {key: own[key] for key in _MACHINERY if key in own}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept.get("__loader__"), name)

    def create_module(self, _spec: Any) -> Any:
        self._imports.reveal(self._name)
        return self._module

    def exec_module(self, module: Any) -> None:
        """Undo what the import has changed in the complete module."""
        own = attributes(module)
        for name in _MACHINERY:
            own.pop(name, None)
        own.update(self._kept)


def _spec(name: str, module: Any, loader: Any) -> Any:
    original = attributes(module).get("__spec__")
    if original is None:
        return importlib.machinery.ModuleSpec(name, loader)
    spec = copy.copy(original)
    spec.loader = loader
    return spec
