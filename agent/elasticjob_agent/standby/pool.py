"""Keeps one interpreter in standby for each training process of the member."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from subprocess import Popen

from elasticjob_agent.log import say
from elasticjob_agent.standby import import_list
from elasticjob_agent.standby.import_list import ImportList, Memory
from elasticjob_agent.standby.interpreter import Interpreter, Start

CHECK_SECONDS = 1.0
QUIET_SECONDS = 3.0
"""The time without an import after which the imports of a program are known."""
_NO_LIMIT = (
    "its container has no memory limit; set one, or spec.agent.standby: Always, which takes the "
    "memory that the node has left"
)
_FIRST_IMPORTS_SECONDS = 60.0
"""How long a new member imports at most before it joins the job."""


@dataclass(frozen=True)
class Shell:
    """What the pool needs of its surroundings; `watch` calls a function when a child was reaped."""

    start: Start
    watch: Callable[[int, Callable[[int], None]], None]
    memory: Callable[[], Memory]


class StandbyPool:
    """Starts the training processes of a Python program, and keeps the next ones ready."""

    def __init__(
        self,
        command: Sequence[str],
        container: Mapping[str, str],
        shell: Shell,
        *,
        launches: bool = False,
        within_limit: bool = False,
    ) -> None:
        """Prepare; nothing is started before the first training process.

        If the command `launches`, it is torchrun, whose processes are kept in standby, too.
        `within_limit`: there is none in a container without a limit of its memory.
        """
        self._command = list(command)
        self._container = container
        script = of_console_script(command, container)
        self._python = script or self._command
        self._position = len(script) - len(command) if script else position(command, container)
        self._shell = shell
        self._launches = launches
        self._standby: dict[int, Interpreter] = {}
        self._running: dict[int, Interpreter] = {}
        self._tried: set[int] = set()
        self._size = 0
        self.why_none = ""
        """Why no process is in standby, for users; "" if one is, or none has been wanted yet."""
        self._dropped = self._position is None
        self._said_short = False
        self._without_children = False
        if within_limit and not self._dropped and not shell.memory().limited:
            self._drop(_NO_LIMIT)

    @property
    def is_closed(self) -> bool:
        """Whether no process will be in standby any more."""
        return self._dropped

    @property
    def ready(self) -> int:
        """The number of processes in standby that have imported everything."""
        return sum(each.is_ready and not each.has_ended for each in self._standby.values())

    @property
    def pids(self) -> set[int]:
        """The processes in standby."""
        return {each.popen.pid for each in self._standby.values()}

    def start(
        self,
        slot: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        piped: bool,
        on_exit: Callable[[int], None],
    ) -> Popen[bytes] | None:
        """Return the process that runs a command from now on, or None if the pool cannot start it.

        The references in the command are replaced. Raises OSError if the process cannot be started.
        """
        if list(command) != self._command:
            self._drop("its arguments differ from world to world")
        standby = self._standby.pop(slot, None)
        if standby is not None and not _hand_over(standby, environment, piped=piped):
            standby.kill()
            standby = None
        if self._dropped:
            return None
        program = standby or self._interpreter(environment, piped=piped)

        def ended(code: int) -> None:
            program.ended(code)
            on_exit(code)

        self._shell.watch(program.popen.pid, ended)
        self._running[slot] = program
        self._tried.discard(slot)
        return program.popen

    async def run(self, on_imports: Callable[[bytes], None]) -> None:
        """Keep processes in standby while there is memory for them.

        `on_imports` gets what the program imports, for `import_first` of other members.
        """
        published = ImportList()
        while not self._dropped:
            await asyncio.sleep(CHECK_SECONDS)
            self._check()
            imported = self._imported()
            if imported not in (ImportList(), published):
                published = imported
                on_imports(import_list.encoded(imported))

    async def import_first(self, imports: bytes, slots: int, *, piped: bool) -> None:
        """Import what the program imports in another member, before this member joins the job.

        Nothing is trained in this pod yet, so all its processes import at once and without rests.
        """
        try:
            known = import_list.decoded(imports)
        except (ValueError, TypeError, RecursionError):
            return  # of an agent of another version
        if self._dropped or not known.parts:
            return
        for slot in range(slots):
            try:
                standby = self._interpreter(self._container, known, piped=piped, rests=False)
            except OSError:
                return
            self._shell.watch(standby.popen.pid, standby.ended)
            self._standby[slot] = standby
        waits = [asyncio.ensure_future(each.prepared.wait()) for each in self._standby.values()]
        try:
            await asyncio.wait(waits, timeout=_FIRST_IMPORTS_SECONDS)
        finally:
            for wait in waits:
                wait.cancel()

    def close(self) -> None:
        """End the processes in standby, and start no more."""
        self._dropped = True
        self._end_standby()

    def _imported(self) -> ImportList:
        """Return what the process in standby for the first one has imported, if it has."""
        standby = self._standby.get(0)
        if 0 not in self._running or standby is None or not standby.is_ready:
            return ImportList()
        return standby.imports

    def _interpreter(
        self,
        environment: Mapping[str, str],
        imports: ImportList | None = None,
        *,
        piped: bool,
        rests: bool = True,
    ) -> Interpreter:
        assert self._position is not None
        if imports is not None and self._without_children:
            imports = imports.without_child()
        return Interpreter(
            self._shell.start,
            self._python,
            self._position,
            environment,
            imports=imports,
            rests=rests,
            launches=self._launches and not self._without_children,
            piped=piped,
            on_problem=self._drop,
            on_child_problem=self._drop_children,
        )

    def _check(self) -> None:
        """Start one process in standby, or let one import more, if it is time for that."""
        if self._standby and import_list.is_short(self._shell.memory()):
            self._lack("the training needs the memory")
            self._end_standby()
        for slot in [slot for slot, each in self._standby.items() if each.has_ended]:
            self._standby.pop(slot).kill()
            self.why_none = "the one in standby was killed"
        if any(not each.is_ready for each in self._standby.values()):
            return  # one imports at a time
        for slot, program in self._running.items():
            learned = import_list.learned(program.reports)
            quiet = time.monotonic() - program.heard_at >= QUIET_SECONDS
            standby = self._standby.get(slot)
            if program.has_ended or not quiet or learned == (standby.learned if standby else 0):
                continue
            if standby is None and slot not in self._tried:
                self._tried.add(slot)
                self._begin_standby(slot, program)
                return
            if standby is not None:
                self._size = standby.resident_bytes()
                standby.more(import_list.of(program.reports[standby.learned : learned]))
                standby.learned = learned
                return

    def _begin_standby(self, slot: int, program: Interpreter) -> None:
        memory = self._shell.memory()
        size = self._size or program.resident_bytes()
        count = len(self._running) - len(self._standby)
        if import_list.fits(memory, size, count):
            known = import_list.of(program.reports)
            try:
                standby = self._interpreter(self._container, known, piped=program.piped)
            except OSError:
                return  # the node is short of processes or descriptors
            standby.learned = import_list.learned(program.reports)
            self._shell.watch(standby.popen.pid, standby.ended)
            self._standby[slot] = standby
            self.why_none = ""
        else:
            twice = "twice " if memory.together else ""
            self._lack(
                f"{count} of {size >> 20} MiB do not fit {twice}into the "
                f"{memory.left >> 20} MiB of memory that are left, with a margin of "
                f"{int(import_list.MARGIN * memory.total) >> 20} MiB"
            )

    def _drop(self, why: str) -> None:
        if not self._dropped:
            say(f"no process in standby for this command: {why}")
            self.why_none = why
        self.close()

    def _lack(self, why: str) -> None:
        self.why_none = why
        if not self._said_short:
            self._said_short = True
            say(f"no process in standby, as {why}")

    def _drop_children(self, why: str) -> None:
        if not self._without_children:
            say(f"no process in standby for those that torchrun starts: {why}")
            self._without_children = True
            self._tried.clear()
            self._end_standby()

    def _end_standby(self) -> None:
        for standby in self._standby.values():
            standby.kill()
        self._standby = {}


def _hand_over(standby: Interpreter, environment: Mapping[str, str], *, piped: bool) -> bool:
    """Let a process in standby run the program; return whether it does."""
    if not standby.is_ready or standby.has_ended or standby.piped != piped:
        return False
    return standby.go(environment)


_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_FLAGS = re.compile(r"-[uBOsqb]+")
_WITH_VALUE = ("-W", "-X")
_ENV = "/usr/bin/env"
_FIRST_LINE_BYTES = 255
"""Linux reads as much of a program's first line."""
_OTHER_STARTS = ("PYTHONSAFEPATH", "PYTHONINSPECT")


def position(command: Sequence[str], container: Mapping[str, str]) -> int | None:
    """Return the position of the script, or of -m, in a command of Python.

    None: it is another command, or one that an interpreter in standby could not run exactly alike.
    """
    if not _PYTHON.fullmatch(PurePosixPath(command[0]).name):
        return None
    if any(container.get(name) for name in _OTHER_STARTS):
        return None
    at = 1
    while at < len(command):
        word = command[at]
        if word in _WITH_VALUE:
            at += 1
        elif word == "-m":
            return at if len(command) > at + 1 else None
        elif not (_FLAGS.fullmatch(word) or word.startswith(_WITH_VALUE)):
            return at if word.endswith(".py") else None
        at += 1
    return None


def of_console_script(command: Sequence[str], container: Mapping[str, str]) -> list[str] | None:
    """Return the command of Python that the kernel makes of a script with "#!" and Python.

    None: the command is another one, or has options with which `position` recognizes none.
    """
    program = shutil.which(command[0], path=container.get("PATH"))
    if program is None or any(container.get(name) for name in _OTHER_STARTS):
        return None
    try:
        with Path(program).open("rb") as file:
            start, _, words = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0].partition(b"#!")
        python = words.decode().split()
    except (OSError, ValueError):
        return None
    if start or len(python) > 2:  # the kernel passes all options as one argument
        return None
    if python[:1] == [_ENV]:
        del python[0]
    known = python and _PYTHON.fullmatch(PurePosixPath(python[0]).name)
    if not known or not all(_FLAGS.fullmatch(word) for word in python[1:]):
        return None
    return [*python, program, *command[1:]]
