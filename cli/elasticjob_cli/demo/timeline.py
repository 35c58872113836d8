"""The demo's output: a line for every event with its time, and a closing summary of the steps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Step:
    """One observed step of the demo.

    Its title, the seconds it took, and the observation that proves it.
    """

    title: str
    seconds: float
    proof: str


@dataclass
class Timeline:
    """Prints events as they come, and the steps at the end."""

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
