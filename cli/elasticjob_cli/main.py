"""The list of commands of `elasticjob`, also called `kubectl elasticjob`.

Only the module of the called command is imported, so that `elasticjob --help` is fast. If a package
is missing, as on workers, the command names the extra that has it.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from elasticjob_cli.common.streams import INTERRUPTED, discard

if TYPE_CHECKING:
    import typer

COMMANDS = {
    "init": ("jobs.submit:init", "Write a commented job file for a framework."),
    "run": ("run.launch:run", "Train on this machine, without a cluster."),
    "submit": ("jobs.submit:submit", "Create a job from a job file or a Python script."),
    "list": ("jobs.list:list_", "List jobs with their phase, workers, step and rate."),
    "describe": (
        "jobs.describe:describe",
        "Show a job on a page: roles, pods, plans, failures, events.",
    ),
    "logs": ("jobs.logs:logs", "Show the output of a job's members, by rank; -f follows it."),
    "top": ("query.top:top", "Show jobs live: progress, rate, members."),
    "exec": ("jobs.exec:exec_", "Run a command in the container of a job's member."),
    "dashboard": (
        "jobs.dashboard:dashboard",
        "Show a job's dashboard, or all jobs, in the browser.",
    ),
    "query": ("query.command:query", "Query a job's master: world, members, shards, auto-scaling."),
    "stacks": ("query.command:stacks", "Show what the training processes execute, and who waits."),
    "scale": ("jobs.changes:scale", "Change the number of a job's members."),
    "suspend": (
        "jobs.changes:suspend",
        "Suspend a job: its members save, and its pods are deleted.",
    ),
    "resume": ("jobs.changes:resume", "Resume a suspended job."),
    "stop": ("jobs.changes:stop", "End a job for good, after its members have saved."),
    "delete": ("jobs.changes:delete", "Delete jobs and their pods."),
    "wait": ("jobs.changes:wait", "Wait until a job has reached a phase or a step."),
    "plans": ("jobs.listing:plans", "List a job's ScalePlans: source, change and outcome."),
    "history": ("query.command:history", "Show a training over time: events, rate, metrics."),
    "events": ("jobs.listing:events", "List the events of a job and its pods."),
    "doctor": ("jobs.doctor:doctor", "Check server, definitions, operator and your rights."),
    "convert": ("convert.command:convert", "Convert the job files of other operators."),
    "version": ("main:version", "Print the version of this command."),
}
"""By name: module and function below this package, and the first line of its help."""
_SIGNED = {"scale"}
"""Commands with arguments such as -1, which are not options."""
_WITH_A_COMMAND = {"run"}
"""Commands whose arguments are another command with its options."""
_INSTALL = "pip install 'elasticjob[cli]'"
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
_CERTIFICATES = "SSL_CERT_FILE"
_OBJECTS_BEFORE_COLLECTION = 50_000
"""Imports make many objects and no garbage, so the collector would only take time."""
GROUPS = {
    "pool": ("jobs.pools:group", "Show pools: who holds what of a full cluster, who waits."),
    "dev": ("dev.group:dev", "A Kubernetes cluster on this machine, to try things out."),
}


def command_line(called: Collection[str]) -> typer.Typer:
    """Return the command line; only the commands in `called` can run."""
    import typer

    from elasticjob_cli.common.arguments import with_typer
    from elasticjob_cli.parameters import Command, typer_parameter

    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Elastic deep-learning jobs on Kubernetes.",
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            version()
            raise typer.Exit

    @app.callback()
    def options(
        _: bool = typer.Option(
            False,
            "--version",
            callback=show_version,
            is_eager=True,
            help=COMMANDS["version"][1],
        ),
    ) -> None:
        pass

    for name, (place, line) in COMMANDS.items():
        if name in called:
            settings = {
                "ignore_unknown_options": name in _SIGNED,
                "allow_interspersed_args": name not in _WITH_A_COMMAND,
            }
            command = with_typer(_imported(place), typer_parameter)
            app.command(name, cls=Command, context_settings=settings)(command)
        else:
            app.command(name, help=line)(_not_called)
    for name, (place, line) in GROUPS.items():
        app.add_typer(_imported(place) if name in called else _empty_group(), name=name, help=line)
    return app


def main() -> None:
    """Run the command that the arguments name, and end the process.

    Python would free each object first, which takes a sixth of the time of `list`.
    """
    code: object = None
    try:
        run_command()
    except SystemExit as end:
        code = end.code
    threads = "threading" in sys.modules and sys.modules["threading"].active_count() > 1
    if threads or not isinstance(code, int | None):
        raise SystemExit(code)
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code or 0)


def run_command() -> None:
    """Run the command that the arguments name."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:  # closed by the caller, as with >&-
            setattr(sys, name, discard(number))
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    if completing:
        import logging  # slow; a Ctrl-C until here would print a traceback

        logging.disable()  # the shell would show logs in the middle of the user's line
    # Bash sets the first variable, other shells the second one.
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        if sys.argv[1:] in (["version"], ["--version"]):
            version()  # the other commands need imports that take much longer
            return
        if completing or not _run_plainly(sys.argv[1:]):
            command_line((words.split() if completing else sys.argv)[1:2])()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command itself handles Ctrl-C: imports take a moment
        raise SystemExit(INTERRUPTED) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith("elasticjob"):
            raise
        sys.stderr.write(
            f"error: {package} is not installed, which the command line needs: {_INSTALL}\n"
        )
        raise SystemExit(1) from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader, such as head, has closed the pipe
            sys.stdout = discard(1)
            raise SystemExit(1) from None
        if error.errno not in _NOT_WRITTEN:
            raise
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        sys.stdout = discard(1)  # Python flushes the rest when it ends
        raise SystemExit(1) from error


def version() -> None:
    """Print the version of this command."""
    sys.stdout.write(f"elasticjob {_installed_version()}\n")


def _run_plainly(words: list[str]) -> bool:
    """Run a command without typer; return False if only typer can read its command line."""
    name = words[0] if words else ""
    if name not in COMMANDS or name in _WITH_A_COMMAND:
        return False
    if "--help" in words or "-h" in words:
        return False
    from elasticjob_cli.common.arguments import plain_values

    command = _imported(COMMANDS[name][0])
    given = plain_values(command, words[1:])
    if given is None:
        return False
    command(**given)
    return True


def _installed_version() -> str:
    """Return the version in the name of the package's metadata."""
    for folder in sys.path:
        with suppress(OSError):
            for name in os.listdir(folder or "."):  # noqa: PTH208 (pathlib takes longer than this)
                if name.startswith("elasticjob-") and name.endswith(".dist-info"):
                    return name.removeprefix("elasticjob-").removesuffix(".dist-info")
    from importlib import metadata  # slow; for packages in other forms, such as a zip

    return metadata.version("elasticjob")


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    with _no_certificates():
        return getattr(import_module(f"elasticjob_cli.{module}"), name)


@contextmanager
def _no_certificates() -> Iterator[None]:
    """Let aiohttp find no certificates when it is imported.

    Its import reads all authorities of this machine twice, which takes as long as a request. They
    are for sessions that bring no TLS context, and there are none in this command.
    """
    before = os.environ.get(_CERTIFICATES)
    os.environ[_CERTIFICATES] = os.devnull
    try:
        yield
    finally:
        del os.environ[_CERTIFICATES]
        if before is not None:
            os.environ[_CERTIFICATES] = before


def _not_called() -> None:
    raise AssertionError("this command was not imported")


def _empty_group() -> typer.Typer:
    import typer

    group = typer.Typer()
    group.callback()(_not_called)
    return group


if __name__ == "__main__":
    main()
