"""`elasticjob run`: runs a job on this machine, without Kubernetes.

It makes the folder, credentials and addresses of a run, its guard, and its supervisor.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.frameworks import FRAMEWORKS, launchers
from elasticjob_client.errors import ClientError, WrongArgument

from elasticjob_cli.common.arguments import Argument, Option
from elasticjob_cli.common.local_runs import RunInfo, base_folder, check_name
from elasticjob_cli.common.options import Framework, reported
from elasticjob_cli.run import environment
from elasticjob_cli.run.environment import Run
from elasticjob_cli.run.folder import Claim, claimed, name_from_command, start_guard, write_info
from elasticjob_cli.run.sizes import Bounds, initial_size

_MASTERS_PACKAGES = ("aiohttp", "grpc_health", "grpc_reflection", "prometheus_client", "uvloop")
_ADDRESS_ATTEMPTS = 100
_VALID = timedelta(days=365)
_GUARD_SECONDS = 15.0
_IN_PLACE_OF_OPTIONS = MappingProxyType(
    {
        option: {
            "replicas": "--workers of elasticjob run",
            "slotsPerReplica": "-n of elasticjob run",
            "processRestartLimit": "--restart-limit of elasticjob run",
        }[field]
        for option, field in launchers.FIELDS.items()
    }
)
"""Options of `elasticjob run` by options of a launcher."""


def run(
    command: Annotated[
        list[str],
        Argument(
            help="The training command; a file.py is run by this Python.", metavar="COMMAND..."
        ),
    ],
    number: Annotated[
        int | None,
        Option("-n", help="The first number of workers; default: the fewest of --workers, else 1."),
    ] = None,
    workers: Annotated[
        str | None,
        Option(help="Workers (4), or the fewest and the most (1:4).", metavar="N|MIN:MAX"),
    ] = None,
    framework: Annotated[
        Framework | None,
        Option(
            help="The framework whose variables the workers get; default: pytorch for torchrun, "
            "else custom."
        ),
    ] = None,
    name: Annotated[
        str | None,
        Option(help="The run's name for other commands, such as scale; default: the script's."),
    ] = None,
    restart_limit: Annotated[
        int,
        Option(help="The number of restarts of a program that crashes.", min=0, max=10_000),
    ] = 0,
    standby: Annotated[
        bool,
        Option(
            "--standby/--no-standby",
            help="Keep one more process for each worker, which has done the program's imports "
            "before the world changes, where the machine has memory for it.",
        ),
    ] = True,
) -> None:
    """Train on this machine, without a cluster.

    Master and workers are processes on this machine. `elasticjob scale NAME 4` in another terminal
    changes their number. Ctrl-C lets them save; a second one kills them. Exit code 0: the training
    has succeeded.
    """
    with reported():
        size, bounds = initial_size(number, workers)
        default = "pytorch" if launchers.launcher_of(command) else "custom"
        chosen = framework.value if framework else default
        code = launch(
            Wanted(
                without_separator(command),
                size,
                bounds,
                framework=chosen,
                name=name,
                restart_limit=restart_limit,
                standby=standby,
            )
        )
    raise SystemExit(code)


@dataclass(frozen=True)
class Wanted:
    """The user's request for a run.

    Attributes:
        command: the training command.
        size: the first number of workers.
        bounds: the fewest and the most workers.
        framework: the workers get its variables.
        name: the run's name; None to derive it from the command.
        restart_limit: the number of restarts of a crashed program.
        standby: processes are kept in standby.
    """

    command: Sequence[str]
    size: int
    bounds: Bounds
    framework: str
    name: str | None
    restart_limit: int
    standby: bool


def launch(wanted: Wanted) -> int:
    """Run to the end, and return the exit code. Raises `ClientError` if it cannot start."""
    check_machine(sys.platform, wanted.framework)
    check_command(wanted.framework, wanted.command)
    missing = [package for package in _MASTERS_PACKAGES if find_spec(package) is None]
    if missing:
        raise ClientError(
            f"the master's packages are not installed ({', '.join(missing)}): "
            "pip install 'elasticjob[cli,master]'"
        )
    name = check_name(wanted.name) if wanted.name is not None else name_from_command(wanted.command)
    with claimed(base_folder(os.environ), name, exact=wanted.name is not None) as claim:
        run = _describe(wanted, claim)
        with _guarded(run, claim):
            return _supervise(run, claim, wanted)


def check_machine(platform: str, framework: str) -> None:
    """Check that the framework can train with workers alone on Linux. Raises `ClientError`."""
    if platform != "linux":
        raise ClientError(
            "elasticjob run needs Linux, as it uses its addresses and process control; "
            f"not {platform}"
        )
    others = [
        " or ".join(group)
        for group in FRAMEWORKS[framework].required
        if names.ROLE_WORKER not in group
    ]
    if others:
        raise WrongArgument(
            f"--framework {framework} needs {' and '.join(others)} beside the workers, "
            "which a run on this machine does not have"
        )


def check_command(framework: str, command: Sequence[str]) -> None:
    """Check that the program exists, and a launcher's world is left to the agents.

    Raises `WrongArgument`.
    """
    program = command[0]
    if not Path(program).exists() and shutil.which(program) is None:
        raise WrongArgument(f"{program[:200]}: there is no such file or program")
    if framework != "pytorch":
        return
    if error := launchers.fixed_options(command, _IN_PLACE_OF_OPTIONS):
        raise WrongArgument(f"{command[0]}: {error}")


def without_separator(command: Sequence[str]) -> Sequence[str]:
    """Return the command without a `--` directly after its script, as `submit` takes it."""
    if len(command) > 1 and command[0].endswith(".py") and command[1] == "--":
        return [command[0], *command[2:]]
    return command


def _describe(wanted: Wanted, claim: Claim) -> Run:
    """Return the run with new credentials."""
    # As late as possible, since `cryptography` takes a while to load.
    from elasticjob_kube import x509

    unique = secrets.token_hex(8)
    authority = x509.new_authority(x509.subject("elasticjob-run"), valid=_VALID)
    hosts = [names.TLS_SERVER_NAME]
    server = x509.issue(
        authority, x509.subject(hosts[0]), valid=_VALID, purposes=(x509.SERVER,), hosts=hosts
    )
    return Run(
        name=claim.name,
        # A run that its user has named continues from the checkpoints of the last run of the name.
        uid=f"run-{claim.name}" if wanted.name is not None else f"run-{claim.name}-{unique}",
        framework=wanted.framework,
        command=_runnable(wanted.command),
        subnet=_free_subnet(wanted.framework, wanted.size),
        marker=f"elasticjob-run/{unique}",
        token=secrets.token_urlsafe(32),
        authority=authority.certificate_pem.decode(),
        certificate=server.certificate_pem.decode(),
        key=server.key_pem.decode(),
        least=wanted.bounds.least,
        most=wanted.bounds.most,
        restart_limit=wanted.restart_limit,
        standby=wanted.standby,
    )


def _runnable(command: Sequence[str]) -> Sequence[str]:
    """Return the command; this Python runs a script that is not executable, as with torchrun."""
    if command[0].endswith(".py") and not os.access(command[0], os.X_OK):
        return [sys.executable, *command]
    return command


def _free_subnet(framework: str, size: int) -> str:
    """Return the first three numbers of unused loopback addresses."""
    for _ in range(_ADDRESS_ATTEMPTS):
        subnet = f"127.{128 + secrets.randbelow(127)}.{secrets.randbelow(256)}"
        master = environment.master_address(subnet)
        places = [(master, names.GRPC_PORT), (master, names.HTTP_PORT)]
        places += [("", port) for port in environment.meeting_ports(framework, subnet, size)]
        if all(_is_free(*place) for place in places):
            return subnet
    raise ClientError(
        "no free addresses in 127.0.0.0/8: `ip address show lo` must have 127.0.0.1/8"
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


@contextmanager
def _guarded(run: Run, claim: Claim) -> Iterator[None]:
    """Keep a guard, which ends the run's processes and removes its folder at the end."""
    process = start_guard(run.marker, claim)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # it finishes alone
            process.wait(_GUARD_SECONDS)


def _supervise(run: Run, claim: Claim, wanted: Wanted) -> int:
    from elasticjob_cli.run.supervisor import Supervisor

    info = RunInfo(
        name=run.name,
        pid=os.getpid(),
        started=time.time(),
        command=list(wanted.command),
        framework=run.framework,
        master=host_port(run.master_address, names.GRPC_PORT),
        token=run.token,
        authority=run.authority,
    )
    write_info(claim.folder, info)

    async def work() -> int:
        return await Supervisor(run, claim.folder, gpus=_gpus()).work(wanted.size)

    return asyncio.run(work())


def _gpus() -> list[str]:
    """Return the names for CUDA of the NVIDIA GPUs that the workers may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [each for each in visible.split(",") if each.strip()]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(number) for number in range(len(list(folder.iterdir())))] if folder.is_dir() else []
