"""Acts as a user of another operator: `elasticjob convert`, then kubectl."""

from __future__ import annotations

import subprocess

import yaml
from elasticjob_api.meta import Json

from tests.support.command_line import ELASTICJOB
from tests.support.e2e.sandbox import Sandbox

_SOMETHING_IS_LOST = 3


def create_converted(sandbox: Sandbox, *documents: Json) -> None:
    """Convert another operator's documents and create the results in the test's namespace."""
    for document in documents:
        document["metadata"].pop("namespace", None)
    done = subprocess.run(
        [ELASTICJOB, "convert", "-f", "-"],
        input=yaml.safe_dump_all(documents),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    print("$ elasticjob convert\n", done.stdout, done.stderr)
    assert done.returncode in (0, _SOMETHING_IS_LOST), done.stderr
    sandbox.kubectl("create", "-f", "-", stdin=done.stdout)


def set_environment(container: Json, **variables: str) -> None:
    """Add variables to a container."""
    added = [{"name": name, "value": value} for name, value in variables.items()]
    container["env"] = [*container.get("env", ()), *added]
