"""Acts as a user of `elasticjob` in a test's namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.command_line import ELASTICJOB
from tests.support.e2e.sandbox import Sandbox
from tests.support.warm_process import run_warm


@dataclass(frozen=True)
class CommandLineUser:
    """A user of `elasticjob` with a kubeconfig, in a namespace."""

    sandbox: Sandbox

    def command(self, name: str, *arguments: str) -> list[str | Path]:
        """Return the command line of a command with this user's access."""
        access = [
            f"--kubeconfig={self.sandbox.cluster.kubeconfig}",
            f"--namespace={self.sandbox.namespace}",
        ]
        return [ELASTICJOB, name, *access, *arguments]

    def run(
        self, name: str, *arguments: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        done = run_warm("elasticjob", *map(str, self.command(name, *arguments)[1:]), stdin=stdin)
        print("$ elasticjob", name, *arguments, done.returncode, done.stdout[-3000:], done.stderr)
        return done

    @contextmanager
    def dashboard(self, *arguments: str) -> Iterator[str]:
        """Serve a dashboard while in the block; yields its address."""
        with subprocess.Popen(
            self.command("dashboard", "--no-browser", *arguments), stdout=subprocess.PIPE, text=True
        ) as serving:
            try:
                assert serving.stdout is not None
                yield serving.stdout.readline().split(" is at ")[1].split(";")[0]
            finally:
                serving.terminate()

    def out(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        """Run a command that succeeds; return its output."""
        done = self.run(name, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout
