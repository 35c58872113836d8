"""The command `elasticjob`, also `kubectl elasticjob`: the list of commands.

Each is a function in a file of its own. Only the module of the command that is called is imported,
so that `elasticjob --help` answers at once. Where packages are missing, as a worker needs few of
them, it says which extra has them.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import typer

COMMANDS = {
    "init": ("jobs.init:init", "Write a commented job file for a framework."),
    "run": ("run.command:run", "Train on this machine, without a cluster."),
    "submit": ("jobs.submit:submit", "Create a job from a job file or a Python script."),
    "list": ("jobs.listing:list_", "List jobs with their phase, workers, step and rate."),
    "describe": (
        "jobs.listing:describe",
        "Show a job on a page: roles, pods, plans, failures, events.",
    ),
    "logs": ("jobs.logs:logs", "Show what a job's members write, by rank; -f follows them."),
    "top": ("jobs.top:top", "Show live how jobs are doing: progress, rate, members."),
    "exec": ("jobs.exec:exec_", "Run a command in the container of a job's member."),
    "dashboard": ("jobs.dashboard:dashboard", "Show a job's dashboard in the browser."),
    "query": ("query.command:query", "Ask a job's master: world, members, shards, auto-scaling."),
    "scale": ("jobs.scale:scale", "Change the number of a job's members."),
    "suspend": ("jobs.lifecycle:suspend", "Suspend a job: its members save, and its pods go."),
    "resume": ("jobs.lifecycle:resume", "Let a suspended job go on."),
    "stop": ("jobs.lifecycle:stop", "End a job for good, after its members have saved."),
    "delete": ("jobs.lifecycle:delete", "Delete a job and its pods."),
    "wait": ("jobs.lifecycle:wait", "Wait until a job has reached a phase or a step."),
    "plans": ("jobs.listing:plans", "List a job's ScalePlans: who wanted what, what came of it."),
    "history": ("jobs.history:history", "Show the course of a training: events, rate, metrics."),
    "events": ("jobs.listing:events", "List what has happened to a job and its pods."),
    "doctor": ("jobs.doctor:doctor", "Say what is missing for these commands, and what to do."),
    "convert": ("convert.command:convert", "Convert the job files of other operators."),
    "version": ("version:version", "Print the version of this command."),
}
"""By name: where the function is, below this package, and the line of its help that the list shows.
"""
_SIGNED = {"scale"}
"""Commands with an argument such as -1, which is no option."""
_WITH_A_COMMAND = {"run"}
"""Commands whose arguments are a command with options of its own."""
_INSTALL = "pip install 'elasticjob[cli]'"
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
GROUPS = {"dev": ("dev:dev", "A Kubernetes cluster on this machine, for trying out.")}


def command_line(called: Collection[str]) -> typer.Typer:
    """Return the command line, in which only the commands that may be called now can be."""
    import typer

    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Elastic deep-learning jobs on Kubernetes.",
    )
    for name, (place, line) in COMMANDS.items():
        if name in called:
            settings = {
                "ignore_unknown_options": name in _SIGNED,
                "allow_interspersed_args": name not in _WITH_A_COMMAND,
            }
            app.command(name, context_settings=settings)(_imported(place))
        else:
            app.command(name, help=line)(_not_called)
    for name, (place, line) in GROUPS.items():
        app.add_typer(_imported(place) if name in called else _empty_group(), name=name, help=line)
    return app


def main() -> None:
    """Run the command that the arguments name."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:  # closed by who called this, as by >&-
            setattr(sys, name, _nowhere(number))
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    if completing:
        logging.disable()  # it would be written in the middle of the user's line
    # What is completed is in the one variable in bash, in the other one in other shells.
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    try:
        command_line((words.split() if completing else sys.argv)[1:2])()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package.startswith("elasticjob"):
            raise
        sys.stderr.write(
            f"error: {package} is not installed, which the command line needs: {_INSTALL}\n"
        )
        raise SystemExit(1) from error
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
        sys.stdout = _nowhere(1)  # where Python writes what is left when it ends
        raise SystemExit(1) from error


def _nowhere(descriptor: int) -> TextIO:
    """Return a file that keeps nothing, in place of a standard one, so that no connection gets its number."""
    opened = os.open(os.devnull, os.O_WRONLY)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"elasticjob_cli.{module}"), name)


def _not_called() -> None:
    raise AssertionError("a command that was not among those that may be called")


def _empty_group() -> typer.Typer:
    import typer

    group = typer.Typer()
    group.callback()(_not_called)
    return group


if __name__ == "__main__":
    main()
