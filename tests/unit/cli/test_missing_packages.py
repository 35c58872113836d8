"""A plain installation has what a worker needs.

The command and the client say which extra has the rest.
"""

from __future__ import annotations

import pytest

from tests.support.programs import python

COMMAND = "import sys; from elasticjob_cli.main import main; main()"
CLIENT = "import elasticjob; import elasticjob.client"
NEEDED = {
    "typer": "--help",
    **dict.fromkeys(("yaml", "msgspec", "kubernetes"), "list --kubeconfig=/nonexistent"),
    "aiohttp": "dashboard a --kubeconfig=/nonexistent",
}
"""By package: a command that needs it."""


def hidden(package: str, script: str) -> str:
    """Return a script for which a package is not installed."""
    return f"import sys; sys.modules[{package!r}] = None; {script}"


@pytest.mark.guarantee("doctor-names-what-is-missing")
@pytest.mark.parametrize("package", NEEDED)
def test_the_command_says_in_a_line_which_extra_is_missing(package: str) -> None:
    done = python(hidden(package, COMMAND), *NEEDED[package].split())
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "elasticjob[" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_typer_only() -> None:
    assert python(hidden("kubernetes", COMMAND), "--help").returncode == 0


@pytest.mark.parametrize("package", ["aiohttp", "msgspec"])
def test_importing_the_client_says_which_extra_is_missing(package: str) -> None:
    done = python(hidden(package, CLIENT))
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: elasticjob.client needs {package}, which is not installed: "
        "pip install 'elasticjob[client]'"
    )
