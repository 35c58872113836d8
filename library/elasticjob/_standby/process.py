"""Prepares this process, and runs the program in it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import io
import json
import os
import runpy
import stat
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import GO, MORE, environment, preparation
from .imports import Imports, Reporter

_LAST_OOM_SCORE = "1000"
_OOM_SCORE = "/proc/self/oom_score_adj"
_OWN_NAMES = {
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__annotations__",
    "__builtins__", "__file__", "__cached__",
}  # fmt: skip


def run(control: str, command: list[str]) -> None:
    """Prepare this process, and run the program of a command as `__main__`."""
    reports, orders, memory, at = (int(number) for number in control.split(","))
    for number in (reports, orders, memory):
        os.set_inheritable(number, False)
    content = _content(memory)
    reporter = Reporter(reports, content.get("index"))
    given = environment.given()
    imports = Imports(reporter, command)
    children = None
    next_order = _next_order
    if content["launches"] or _is_child(orders):
        # Before the program's folder is in sys.path: modules there may have names of standard ones.
        helper: Any = importlib.import_module(f"{__package__}.children")
        if content["launches"]:
            children = helper.Children(reporter.send, reports, given)
        if _is_child(orders):
            next_order = helper.next_order
    sys.argv = command[at:]
    folder = os.path.dirname(os.path.realpath(command[at]))  # noqa: PTH120
    if command[at] == "-m":
        sys.argv = ["-m", *command[at + 2 :]]
        folder = os.getcwd()  # noqa: PTH109
    sys.orig_argv = list(command)
    sys.path.insert(0, folder)
    different = None
    if content["imports"] is not None:
        different = _stand_by(imports, children, next_order, orders, memory, given)
    os.close(orders)
    os.close(memory)
    imports.begin()
    if different is not None:
        imports.start_again(f"{different} is read by its imports, and differs from world to world")
    if children is not None:
        children.begin()
    os.register_at_fork(after_in_child=imports.reporter.close)
    _execute(command, at, imports)


def _stand_by(
    imports: Imports,
    children: Any,
    next_order: Callable[[int], tuple[bytes, list[int]]],
    orders: int,
    memory: int,
    given: dict[str, str],
) -> str | None:
    """Import the modules of the agent's import lists, wait for the order to go, and prepare for it.

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
    order = MORE
    while order == MORE:
        content = _content(memory)
        rests = content["rests"]
        imports.segments += preparation.recorded(
            content["imports"], before, lambda why: _give_up(imports.reporter, why), rests=rests
        )
        if children is not None:
            children.prepare(content["child"], content["parts_of_child"], score, rests=rests)
        imports.reporter.send({"ready": True, "problem": preparation.problem(imports.segments)})
        order, files = next_order(orders)
    if order != GO:
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
    environment.replace({**environment.without(before, given), **content["environment"]})
    if score:
        _set_oom_score(score)
    for segment in imports.segments:
        for name in segment.modules:
            sys.modules.pop(name, None)
    return environment.difference(given, content["environment"], environment.reads)


def _give_up(reporter: Reporter, problem: str) -> NoReturn:
    """End this process in standby at once, and with it what it has opened."""
    reporter.send({"problem": problem})
    os._exit(0)


def _next_order(orders: int) -> tuple[bytes, list[int]]:
    return os.read(orders, 1), []


def _is_child(orders: int) -> bool:
    """Return whether torchrun sends the orders: by a socket, not a pipe."""
    return stat.S_ISSOCK(os.fstat(orders).st_mode)


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


def _execute(command: list[str], at: int, imports: Imports) -> None:
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


def _run_script(script: str, main: dict[str, Any], imports: Imports) -> None:
    path = os.path.join(os.getcwd(), script)  # noqa: PTH109, PTH118 (as the interpreter does)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError:
        imports.start_again(f"{script} cannot be read")  # the interpreter says why
    main["__file__"] = path
    main["__loader__"] = importlib.machinery.SourceFileLoader("__main__", path)
    exec(compile(source, path, "exec", dont_inherit=True), main)  # noqa: S102


def _of_program(traceback: Any) -> Any:
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _content(memory: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(os.pread(memory, os.fstat(memory).st_size, 0))
    return content
