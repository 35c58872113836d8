"""Starts and ends the agents of a run as workers.py decides, and keeps its master running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

from elasticjob_api.last_words import MAX_MESSAGE, cause_first
from elasticjob_api.plain_text import counted
from elasticjob_client.errors import ClientError
from elasticjob_localcluster.training_library import with_training_library
from elasticjob_processes.killing import kill_marked, shell_code

from elasticjob_cli.run import control, workers
from elasticjob_cli.run.environment import Run, agent_environment
from elasticjob_cli.run.master_process import MasterProcess
from elasticjob_cli.run.output import Output, rank_of, reads_input
from elasticjob_cli.run.sizes import Bounds, resized
from elasticjob_cli.run.workers import Action, Decision, Drain, Finish, Start, Workers

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTPUT_SECONDS = 1.0
"""The time to read a worker's output after its agent has ended: a process that the agent has left
may keep it open.
"""


class Supervisor:
    """The processes of one run."""

    def __init__(self, run: Run, folder: Path, *, gpus: Sequence[str]) -> None:
        """Prepare; nothing is started."""
        self._run = run
        self._folder = folder
        self._gpus = gpus
        self._environment = with_training_library(os.environ, folder / "library")
        self._workers = Workers()
        self._size = 0
        self._is_alone = False
        self._is_interactive = False
        self._agents: dict[int, asyncio.subprocess.Process] = {}
        self._master = MasterProcess(run, folder)
        self._master_restarts = 0
        self._result: Finish | None = None
        self._signal: int | None = None
        self._last_words = ""
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._output = Output(folder, on_closed=lambda: self._interrupted(signal.SIGPIPE))

    async def work(self, size: int) -> int:
        """Run to the end, first with `size` workers; return the exit code of the command.

        A run that begins with one worker gives it the command's input, and on a terminal also the
        output, so that it can ask questions and stop in a debugger.
        """
        self._is_alone = size == 1 and reads_input()
        self._is_interactive = self._is_alone and sys.stdin.isatty() and sys.stdout.isatty()
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            ignored_by_nohup = signal.getsignal(number) == signal.SIG_IGN
            if number != signal.SIGHUP or not ignored_by_nohup:
                loop.add_signal_handler(number, self._interrupted, number)
        self._outcome = loop.create_future()
        async with control.serve(self._folder, self._answer, self._outcome):
            try:
                self._size = size
                name = self._run.name
                self._output.note(
                    f"run {name}, {counted(size, 'worker')}; "
                    f"from another terminal: elasticjob scale {name} {size + 1}"
                )
                await self._start_master()
                await self._until_agents_can_connect()
                self._apply(workers.scale(self._workers, size))
                await self._over.wait()
            finally:
                self._outcome.set_result(self._describe_end())
                self._kill_all()
                await self._master.end()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                for number in SIGNALS:
                    loop.remove_signal_handler(number)
                    signal.signal(number, signal.SIG_IGN)  # during the short remaining clean-up
        return self._report()

    def _describe_end(self) -> str:
        """Return how the run has ended, in the words of a job's phases."""
        if self._result is not None and (self._result.succeeded or self._result.why):
            return "Succeeded" if self._result.succeeded else "Failed"
        return "Stopped"

    def _report(self) -> int:
        if self._signal is not None:
            return 128 + self._signal
        assert self._result is not None
        if self._result.why:
            self._output.say(self._result.why)
            for line in self._last_words.splitlines():
                self._output.say(f"  {line}")
        return 0 if self._result.succeeded else 1

    # --- requests

    def _answer(self, request: control.Request) -> control.Answer:
        match request:
            case control.Scale():
                self._scale(request)
            case control.Stop():
                self._stop("is stopped")
            case control.Show() | control.AwaitEnd():
                pass
        leaving = len(self._workers.indices("leaving"))
        return control.Answer(size=self._size, leaving=leaving)

    def _scale(self, request: control.Scale) -> None:
        if self._workers.stopping or self._result is not None:
            raise ClientError("it is ending and cannot be scaled")
        if self._workers.finishing:
            raise ClientError("its training is finished, so it cannot be scaled")
        indices = {self._name(index): index for index in self._workers.indices("running")}
        size = resized(request.change, list(indices), Bounds(self._run.least, self._run.most))
        self._output.note(f"{self._size} -> {counted(size, 'worker')}")
        self._size = size
        self._master.set_size(size)  # first, so that the master waits for all joining workers
        self._apply(
            workers.scale(
                self._workers, size, leaving=[indices[name] for name in request.change.pods]
            )
        )

    def _interrupted(self, number: int) -> None:
        if self._workers.stopping:
            self._output.say("killed")
            self._kill_all()
            return
        self._signal = number
        if number == signal.SIGINT:
            self._stop("ends: the workers may save; a second Ctrl-C kills them")
        else:
            self._stop("ends")

    def _stop(self, what: str) -> None:
        if not self._workers.stopping:
            self._output.say(f"run {self._run.name} {what}")
            self._apply(workers.stop(self._workers))

    # --- decisions

    def _apply(self, decision: Decision) -> None:
        self._workers, actions = decision
        if self._over.is_set():
            return
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start():
                self._spawn(self._run_agent(action))
            case Drain():
                agent = self._agents.get(action.index)
                if agent is not None and agent.returncode is None:
                    agent.terminate()
            case Finish():
                self._finish(action)

    def _finish(self, finish: Finish) -> None:
        if self._result is None:
            self._result = finish
        if self._workers.indices("running"):
            self._apply(workers.stop(self._workers))
        elif not self._workers.indices("leaving"):
            self._over.set()

    def _ended(self, index: int, code: int, last_words: str) -> None:
        last_words = cause_first(last_words, MAX_MESSAGE, shell_code(code))
        worker = self._workers.present[index]
        restarts = self._workers.restarts
        if code and worker.phase == "running" and not self._workers.stopping:
            self._last_words = last_words
        decision = workers.ended(self._workers, index, code, rank=rank_of(last_words))
        if decision[0].restarts > restarts:
            self._output.say(
                f"worker {index} has failed ({workers.describe_exit(code)}) and is restarted"
            )
        elif (
            worker.phase == "leaving"
            and code not in (0, 143, -signal.SIGTERM)
            and self._signal is None
        ):
            self._output.say(
                f"worker {index} has failed while leaving ({workers.describe_exit(code)})"
            )
        self._apply(decision)

    # --- processes

    async def _run_agent(self, start: Start) -> None:
        """Run an agent to its end."""
        index = start.index
        words = self._folder / f"{self._name(index)}.termination"
        has_terminal = index == 0 and self._is_interactive
        environment = agent_environment(
            self._run,
            index,
            start.incarnation,
            self._environment,
            files=str(self._folder),
            last_words=str(words),
            gpus=self._gpus,
            with_rank=not has_terminal,
        )
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "elasticjob_agent.main", "run", "--", *self._run.command),
            env=environment,
            stdin=None if index == 0 and self._is_alone else subprocess.DEVNULL,
            stdout=None if has_terminal else subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C must reach only this command
        )
        self._agents[index] = agent
        if self._workers.present[index].phase == "leaving":
            agent.terminate()  # it was asked to leave during its start
        copies = [
            asyncio.create_task(
                self._output.copy(
                    stream, index, to_stderr=stream is agent.stderr, at_once=has_terminal
                )
            )
            for stream in (agent.stdout, agent.stderr)
            if stream is not None
        ]
        code = await agent.wait()
        await asyncio.to_thread(kill_marked, self._run.worker_marker(index))
        await asyncio.wait(copies, timeout=_OUTPUT_SECONDS)
        for copy in copies:
            copy.cancel()
        last_words = words.read_text(errors="replace") if words.exists() else ""
        self._ended(index, code, last_words)

    async def _start_master(self) -> None:
        await self._master.start(self._size)
        self._spawn(self._watch_master())

    async def _until_agents_can_connect(self) -> None:
        """Wait until the master listens, or the run is over."""
        listens = asyncio.create_task(self._master.wait_until_it_listens())
        over = asyncio.create_task(self._over.wait())
        await asyncio.wait({listens, over}, return_when=asyncio.FIRST_COMPLETED)
        listens.cancel()
        over.cancel()

    async def _watch_master(self) -> None:
        """Restart the master if it ends before the run does; the workers continue meanwhile."""
        code = await self._master.wait()
        if self._over.is_set():
            return
        self._master_restarts += 1
        why = f"the master has failed ({workers.describe_exit(code)})"
        if self._master_restarts <= self._workers.restart_limit:
            self._output.say(f"{why} and is restarted")
            await self._start_master()
            return
        self._last_words = cause_first(self._master.log, MAX_MESSAGE, shell_code(code))
        self._finish(Finish(succeeded=False, why=why))

    def _kill_all(self) -> None:
        for agent in self._agents.values():
            if agent.returncode is None:
                agent.kill()  # its training processes die with it

    def _name(self, index: int) -> str:
        return self._run.worker_name(index, self._workers.present[index].incarnation)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._result = Finish(succeeded=False, why=f"{type(error).__name__}: {error}")
            self._over.set()
