"""The demo's output: a line per event, kubectl's commands, and a summary of the steps."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


class NotObserved(Exception):
    """An expected step was not observed in time."""


@dataclass(frozen=True)
class Step:
    """An observed step of the demo: title, duration, and the observation that proves it."""

    title: str
    seconds: float
    proof: str


@dataclass
class Timeline:
    """Prints events when they happen, and the steps at the end."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    def event(self, text: str) -> None:
        """Print a change in the cluster."""
        self.console.print(
            f"[dim]{time.monotonic() - self.began:6.1f} s[/]    {text}", highlight=False
        )

    def heading(self, text: str) -> None:
        """Print the title of the next step."""
        self.console.print(f"\n[bold cyan]── {text}[/]", highlight=False)

    def command(self, line: str, output: str) -> None:
        """Print a command as a user would type it, and its output."""
        self.console.print(f"[bold]$ {line}[/]", highlight=False)
        self.console.print(output.rstrip(), highlight=False, markup=False, soft_wrap=True)

    def done(self, title: str, *, since: float, proof: str) -> None:
        """Record and print an observed step.

        `since` is the `time.monotonic()` at which it began.
        """
        step = Step(title, time.monotonic() - since, proof)
        self.steps.append(step)
        self.console.print(f"[green]✓ {title}[/] in {step.seconds:.1f} s: {proof}", highlight=False)

    def summary(self) -> None:
        """Print all steps and figures."""
        table = Table(title="What was observed", title_justify="left")
        table.add_column("step")
        table.add_column("seconds", justify="right")
        table.add_column("proof")
        for step in self.steps:
            table.add_row(step.title, f"{step.seconds:.1f}", step.proof)
        self.console.print()
        self.console.print(table)
        for name, value in self.figures.items():
            self.console.print(f"  {name:<58} {value}", highlight=False)


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one cluster, and prints each command with its output."""

    program: Path
    kubeconfig: Path
    timeline: Timeline

    async def __call__(self, *arguments: str) -> None:
        """Run a command.

        Raises:
            NotObserved: kubectl has failed.
        """
        process = await asyncio.create_subprocess_exec(
            self.program,
            *arguments,
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        shown = " ".join(f"'{argument}'" if "{" in argument else argument for argument in arguments)
        self.timeline.command(f"kubectl {shown}", output.decode(errors="replace"))
        if process.returncode:
            raise NotObserved(f"kubectl {shown}: exit code {process.returncode}")
