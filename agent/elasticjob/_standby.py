"""Runs a training program in an interpreter that may have imported the program's modules before.

The agent (elasticjob_agent.standby) starts it as
    python OPTIONS _standby_start.py REPORTS,ORDERS,MEMORY,POSITION python OPTIONS SCRIPT ARGUMENTS
with two pipes, a file in memory, and the position of the script, or of -m, in the command. The file
contains {"plan": null}, and the program is run at once, or a plan: what an earlier run has imported
from site-packages, and the environment and sys.path at that time. This process then imports it,
with {"rests": true} so slowly that others get the CPU, and waits. The agent replaces the file's
content by a further plan, and sends the order for more, or by {"environment": …}, and sends the
order to go. With {"launches": true} the program is torchrun, which _standby_children.py helps. The
children are started like this process, with a socket in place of the pipe of orders.

The imported modules are hidden until the program imports one of them. If its environment or
sys.path then differs from the plan's, or if the imports have read a variable that is different now,
the process replaces itself by a new Python that runs the command.

The file uses only the standard library, and runs in Python 3.10 or newer.
"""

from __future__ import annotations

import _thread
import contextlib
import copy
import fcntl
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

_GO = b"g"
_MORE = b"m"
_PIPE_BYTES = 1 << 20
_REST = 4
"""Seconds of rest for each second of CPU, while the training process needs the CPU."""
_MOST_REST_SECONDS = 1.0
_LAST_OOM_SCORE = "1000"
_OOM_SCORE = "/proc/self/oom_score_adj"
_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel")
_SITES = ("/site-packages/", "/dist-packages/")
_STANDARD = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 (pathlib would be one more import)
_OWN_NAMES = {
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__",
    "__builtins__", "__file__", "__cached__",
}  # fmt: skip
_IMPORTING = "_find_and_load_unlocked"
"""The function of importlib that calls finders for an import, and not only to look for a module."""
_READ_BY_LIBRARIES = (
    "PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_",
    "OPENBLAS_", "BLIS_", "TF_CPP_", "GRPC_",
)  # fmt: skip
"""Variables that the interpreter and compiled libraries read when they are loaded."""
_MACHINERY = ("__spec__", "__loader__", "__package__", "__path__", "__file__", "__cached__")
Modules = dict[str, Any]


def run(control: str, command: list[str]) -> None:
    """Prepare this process, and run the program of a command as `__main__`."""
    reports, orders, memory, at = (int(number) for number in control.split(","))
    for number in (reports, orders, memory):
        os.set_inheritable(number, False)
    content = _content(memory)
    reporter = _Reporter(reports, content.get("index"))
    given = _given_environment()
    imports = _Imports(reporter, command)
    # Before the program's folder is in sys.path: modules there may have names of standard ones.
    helper: Any = _load_children() if content["launches"] or _is_socket(orders) else None
    children = None
    if content["launches"]:
        children = helper.Children(reporter.send, reports, given, _READ_BY_LIBRARIES)
    sys.argv = command[at:]
    folder = os.path.dirname(os.path.realpath(command[at]))  # noqa: PTH120
    if command[at] == "-m":
        sys.argv = ["-m", *command[at + 2 :]]
        folder = os.getcwd()  # noqa: PTH109
    sys.orig_argv = list(command)
    sys.path.insert(0, folder)
    different = None
    if content["plan"] is not None:
        next_order = helper.next_order if _is_socket(orders) else _next_order
        different = _stand_by(imports, children, next_order, orders, memory, given)
    os.close(orders)
    os.close(memory)
    imports.begin()
    if different is not None:
        imports._start_again(f"{different} is read by its imports, and differs from world to world")
    if children is not None:
        children.begin()
    os.register_at_fork(after_in_child=imports.reporter.close)
    _execute(command, at, imports)


# --- before the program


def _stand_by(
    imports: _Imports,
    children: Any,
    next_order: Callable[[int], tuple[bytes, list[int]]],
    orders: int,
    memory: int,
    given: dict[str, str],
) -> str | None:
    """Import the modules of the agent's plans, wait for the order to go, and prepare for it.

    Returns a variable that was read meanwhile, and is different now; None if there is none.
    """
    folder = os.getcwd()  # noqa: PTH109
    path = list(sys.path)
    before = dict(os.environ)
    content = _content(memory)
    score = content.get("oom_score", _oom_score())
    _set_oom_score(_LAST_OOM_SCORE)
    stdout = os.dup(1)
    os.dup2(2, 1)  # the agent reads it after the order only
    order = _MORE
    while order == _MORE:
        content = _content(memory)
        rests = content["rests"]
        imports.segments += _recorded(content["plan"], before, rests=rests)
        if children is not None:
            children.prepare(content["child"], content["parts_of_child"], score, rests=rests)
        imports.reporter.send({"ready": True, "problem": _problem(imports.segments)})
        order, files = next_order(orders)
    if order != _GO:
        os._exit(0)
    if sys.stdout is not None:
        sys.stdout.flush()
    os.dup2(stdout, 1)
    os.close(stdout)
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    sys.path[:] = path
    content = _content(memory)
    imports.reporter.index = content.get("index")
    if content.get("session"):
        os.setsid()
    _replace_environment({**_without(before, given), **content["environment"]})
    if score:
        _set_oom_score(score)
    for segment in imports.segments:
        for name in segment.modules:
            sys.modules.pop(name, None)
    return difference(given, content["environment"], _reads)


def _next_order(orders: int) -> tuple[bytes, list[int]]:
    return os.read(orders, 1), []


def _is_socket(number: int) -> bool:
    return stat.S_ISSOCK(os.fstat(number).st_mode)


def _load_children() -> Any:
    path = os.path.join(os.path.dirname(__file__), "_standby_children.py")  # noqa: PTH118, PTH120
    spec = importlib.util.spec_from_file_location("_elasticjob_standby_children", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def difference(
    standby: Mapping[str, str], world: Mapping[str, str], reads: Collection[str]
) -> str | None:
    """Return a variable of a world that was read with another value in standby, or None.

    Args:
        standby: the environment in which modules were imported.
        world: the environment of a process of the world.
        reads: the variables that were read meanwhile.
    """
    for name in sorted({*standby, *world}):
        was_read = name in reads or name.startswith(_READ_BY_LIBRARIES)
        if was_read and standby.get(name) != world.get(name):
            return name
    return None


class _Segment:
    """Modules that were imported one after another in the same environment."""

    def __init__(self, part: dict[str, Any], start: dict[str, str]) -> None:
        """Import them; `start`: the environment of this process at its start."""
        _apply(part["changes"])
        if part["path"] is not None:
            sys.path[:] = part["path"]
        before = dict(os.environ)
        known = set(sys.modules)
        self.names: list[str] = part["modules"]
        self.changes = _changes(start, before)
        """The variables that the program changes before it imports them."""
        self.path = list(sys.path)
        installed = [name for name in self.names if _is_installed(name.partition(".")[0])]
        with _recording():
            for name in installed:
                # What it raises is raised again where the program imports it.
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
        self.own_changes = _changes(before, dict(os.environ))
        """The variables that the import of these modules changes."""
        self.path_after = list(sys.path)
        self.modules: Modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name not in known and name.partition(".")[0] not in sys.stdlib_module_names
        }


class _Resting:
    """Lets a process rest after each module that it has imported, so that others get the CPU."""

    def __init__(self) -> None:
        self._used = time.process_time()

    def find_spec(self, _name: str, _path: Any = None, _target: Any = None) -> None:
        used = time.process_time()
        time.sleep(min(_REST * (used - self._used), _MOST_REST_SECONDS))
        self._used = time.process_time()


_reads: set[str] = set()


class _Recording(type(os.environ)):  # type: ignore[misc]
    """The environment, recording the names of variables that are read one by one."""

    def __getitem__(self, key: Any) -> Any:
        _reads.add(os.fsdecode(key) if isinstance(key, (str, bytes)) else "")
        return super().__getitem__(key)


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    original = type(os.environ)
    os.environ.__class__ = _Recording
    os.environb.__class__ = _Recording
    yield
    os.environ.__class__ = original
    os.environb.__class__ = original  # type: ignore[assignment]


def _recorded(plan: list[dict[str, Any]], start: dict[str, str], *, rests: bool) -> list[_Segment]:
    """Import the modules of a plan, and record the variables that they read."""
    resting = _Resting()
    if rests:
        sys.meta_path.insert(0, resting)
    segments = [_Segment(part, start) for part in plan]
    if rests:
        sys.meta_path.remove(resting)
    return segments


def _problem(segments: list[_Segment]) -> str:
    """Return why this process must not be used, or ""."""
    for segment in segments:
        for name, module in segment.modules.items():
            origin = _origin(module)
            if origin and not _is_third_party(origin) and not origin.startswith(_STANDARD):
                return f"importing {segment.names[0]} imports {name} from {origin}"
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
        except OSError:
            continue  # the descriptor of this listing
        if target.startswith(_GPUS):
            return f"importing its modules opens {target}"
    return ""


def _oom_score() -> str:
    """Return how soon the kernel kills this process when memory is short; "" if unknown."""
    try:
        with open(_OOM_SCORE) as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


def _set_oom_score(value: str) -> None:
    with contextlib.suppress(OSError), open(_OOM_SCORE, "w") as file:  # noqa: PTH123
        file.write(value)


# --- while the program runs


class _Imports:
    """Reports what the program imports, and gives it the modules that were imported before."""

    def __init__(self, reporter: _Reporter, command: list[str]) -> None:
        self.reporter = reporter
        self.segments: list[_Segment] = []
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
                _apply(segment.own_changes)
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
            self._installed[package] = _is_installed(package)
        return self._installed[package]

    def _report(self, name: str) -> None:
        """Report a module that the program imports now."""
        environment = dict(os.environ)
        if environment != self._seen or sys.path != self._path:
            changes = _changes(self._seen, environment)
            path = None if sys.path == self._path else list(sys.path)
            self._seen = environment
            self._path = list(sys.path)
            self.reporter.send({"changes": changes, "path": path})
        self.reporter.send({"modules": [name]})

    def _check(self, segment: _Segment) -> None:
        """Start the command again if a cold process would import these modules otherwise."""
        changed, removed = segment.changes
        expected = {**self._environment, **changed}
        for name in removed:
            expected.pop(name, None)
        now = dict(os.environ)
        different = [name for name in {**expected, **now} if expected.get(name) != now.get(name)]
        if different:
            self._start_again(
                f"it sets {', '.join(sorted(different)[:3])} to another value before it imports "
                f"{segment.names[0]} than in its earlier run"
            )
        if sys.path != segment.path:
            self._start_again(
                f"sys.path is not that of its earlier run when it imports {segment.names[0]}"
            )
        for name in segment.modules:
            if name in sys.modules:
                self._start_again(f"it has put another module in the place of {name}")

    def _start_again(self, problem: str) -> NoReturn:
        self.reporter.send({"problem": problem})
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os.chdir(self._folder)
        os.execvpe(self._command[0], self._command, self._environment)  # noqa: S606


class _Revealing:
    """A loader of one hidden module; in all else it is the module's own loader."""

    def __init__(self, imports: _Imports, name: str, module: Any) -> None:
        self._imports = imports
        self._name = name
        self._module = module
        attributes = _attributes(module)
        self._kept = {key: attributes[key] for key in _MACHINERY if key in attributes}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept.get("__loader__"), name)

    def create_module(self, _spec: Any) -> Any:
        self._imports.reveal(self._name)
        return self._module

    def exec_module(self, module: Any) -> None:
        """Undo what the import has changed in the complete module."""
        attributes = _attributes(module)
        for name in _MACHINERY:
            attributes.pop(name, None)
        attributes.update(self._kept)


def _spec(name: str, module: Any, loader: Any) -> Any:
    original = _attributes(module).get("__spec__")
    if original is None:
        return importlib.machinery.ModuleSpec(name, loader)
    spec = copy.copy(original)
    spec.loader = loader
    return spec


class _Reporter:
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


def _execute(command: list[str], at: int, imports: _Imports) -> None:
    """Run the program as the interpreter does, without frames of this file in its tracebacks."""
    main = vars(sys.modules["__main__"])
    for name in set(main) - _OWN_NAMES:
        del main[name]
    main["__doc__"] = None
    try:
        if command[at] == "-m":
            runpy._run_module_as_main(command[at + 1])  # type: ignore[attr-defined]
        else:
            _run_script(command[at], main, imports)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 (shown as the interpreter shows it)
        failure = error.with_traceback(_of_program(error.__traceback__))
    else:
        return
    sys.last_type = type(failure)
    sys.last_value = failure
    sys.last_traceback = failure.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = failure
    sys.excepthook(type(failure), failure, failure.__traceback__)
    if isinstance(failure, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # shown already
        raise failure  # ends the process by SIGINT
    sys.exit(1)


def _run_script(script: str, main: dict[str, Any], imports: _Imports) -> None:
    path = os.path.join(os.getcwd(), script)  # noqa: PTH109, PTH118 (as the interpreter does)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError:
        imports._start_again(f"{script} cannot be read")  # the interpreter says why
    main["__file__"] = path
    main["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    exec(compile(source, path, "exec", dont_inherit=True), main)  # noqa: S102


def _of_program(traceback: Any) -> Any:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


# --- helpers


def _content(memory: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))
    return content


def _given_environment() -> dict[str, str]:
    """Return the environment of this process' start, without what Python itself has added."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _attributes(module: Any) -> dict[str, Any]:
    """Return a module's attributes, without running code of the module."""
    try:
        attributes: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return attributes


def _origin(module: Any) -> str:
    """Return the file of a module; "" if it has none."""
    spec = _attributes(module).get("__spec__")
    origin = getattr(spec, "origin", None)
    return origin if isinstance(origin, str) and os.sep in origin else ""


def _is_installed(package: str) -> bool:
    """Return whether a package is in site-packages, so not one of the program's own."""
    if package in sys.stdlib_module_names:
        return False
    spec = importlib.machinery.PathFinder.find_spec(package)
    if spec is None:
        return False
    places = spec.submodule_search_locations or [spec.origin or ""]
    return all(_is_third_party(f"{place}/") for place in places)


def _is_third_party(origin: str) -> bool:
    return any(site in origin for site in _SITES)


def _changes(old: dict[str, str], new: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the changed variables with their values, and the removed ones."""
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    return changed, [name for name in old if name not in new]


def _apply(changes: Any) -> None:
    changed, removed = changes
    os.environ.update(changed)
    for name in removed:
        os.environ.pop(name, None)


def _without(variables: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in others}


def _replace_environment(variables: dict[str, str]) -> None:
    _apply(_changes(dict(os.environ), variables))
