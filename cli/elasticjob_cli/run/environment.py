"""Computes the environment and the addresses of a run's processes, as those of pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.agent_environment import job_variables, member_variables
from elasticjob_api.drain_times import DEFAULT_DRAIN_SECONDS
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.frameworks.peer import meeting_port

NAMESPACE = "local"
_FIRST_HOST = 10


@dataclass(frozen=True)
class Run:
    """The constants of a run.

    Attributes:
        name: the run's name; its workers are `<name>-worker-<index>`.
        uid: the job's identifier for the training program.
        framework: the workers get its variables.
        command: the training command.
        subnet: the first three numbers of the addresses of master and workers.
        marker: the prefix of the markers of the run's processes.
        token: the token that the master accepts.
        authority: the authority of the master's certificate, in PEM.
        certificate: the master's, in PEM.
        key: the certificate's key, in PEM.
        least: the fewest workers.
        most: the most workers.
        restart_limit: the number of restarts of a worker's crashed process.
        standby: the agents keep processes in standby.
    """

    name: str
    uid: str
    framework: str
    command: Sequence[str]
    subnet: str
    marker: str
    token: str
    authority: str
    certificate: str
    key: str
    least: int
    most: int
    restart_limit: int
    standby: bool = True

    @property
    def master_address(self) -> str:
        """The address at which the master listens."""
        return master_address(self.subnet)

    def worker_name(self, index: int, incarnation: int) -> str:
        """Return the unique name of a worker."""
        return names.member_pod(self.name, names.ROLE_WORKER, index, incarnation)

    def worker_marker(self, index: int) -> str:
        """Return the marker of a worker's processes."""
        return f"{self.marker}/{index}."


def master_address(subnet: str) -> str:
    """Return the address at which the master of a subnet listens."""
    return f"{subnet}.1"


def worker_address(subnet: str, index: int) -> str:
    """Return the address of a worker."""
    return f"{subnet}.{_FIRST_HOST + index}"


def master_environment(run: Run, outer: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the master; `outer` is that of the command."""
    return {
        **_without_our_own(outer),
        **job_variables(run.name, run.uid, NAMESPACE),
        names.ENV_TOKEN: run.token,
        names.ENV_TLS_CERT: run.certificate,
        names.ENV_TLS_KEY: run.key,
        names.ENV_CONTAINER: f"{run.marker}/master.",
    }


def agent_environment(
    run: Run,
    index: int,
    incarnation: int,
    outer: Mapping[str, str],
    *,
    files: str,
    last_words: str,
    gpus: Sequence[str],
    with_rank: bool = True,
) -> dict[str, str]:
    """Return the environment of a worker's agent.

    Args:
        run: the run.
        index: the worker's index.
        incarnation: the number of earlier workers with this index.
        outer: the environment of the command.
        files: the folder for the agent's own files.
        last_words: the file for its termination message.
        gpus: the names for CUDA of the GPUs to divide; may be empty.
        with_rank: begin each line that the program prints with its rank.
    """
    name = run.worker_name(index, incarnation)
    master = names.master_service(run.name)
    shown = {}
    if gpus:
        shown["CUDA_VISIBLE_DEVICES"] = ",".join(own_gpus(gpus, index, run.most))
    return {
        "PYTHONUNBUFFERED": "1",  # its output goes through a pipe
        **_without_our_own(outer),
        **shown,
        **job_variables(run.name, run.uid, NAMESPACE),
        **member_variables(
            run.name,
            names.ROLE_WORKER,
            index,
            incarnation,
            framework=run.framework,
            process_restart_limit=run.restart_limit,
            drain_seconds=DEFAULT_DRAIN_SECONDS,
            standby="Always" if run.standby else "None",
        ),
        names.ENV_POD_NAME: name,
        names.ENV_POD_UID: f"{run.marker}/{name}",
        names.ENV_POD_IP: worker_address(run.subnet, index),
        names.service_host_env(master): run.master_address,
        names.ENV_TOKEN: run.token,
        names.ENV_CA: run.authority,
        names.ENV_AGENT_FILES: files,
        names.ENV_TERMINATION_LOG: last_words,
        **({names.ENV_RANK_PREFIX: "1"} if with_rank else {}),
        names.ENV_CONTAINER: run.worker_marker(index),
    }


def own_gpus(gpus: Sequence[str], index: int, most: int) -> list[str]:
    """Return the GPUs of a worker: its share among the most workers, and at least one."""
    share = max(1, len(gpus) // most)
    return [gpus[(index * share + each) % len(gpus)] for each in range(share)]


def meeting_ports(framework: str, subnet: str, workers: int) -> set[int]:
    """Return the ports at which `workers` workers may listen on all addresses of this machine."""
    ports = FRAMEWORKS[framework].ports
    return {
        meeting_port(worker_address(subnet, index), port)
        for index in range(workers)
        for port in ports
    }


def _without_our_own(outer: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of an enclosing run, except for the user's."""
    return {
        name: value
        for name, value in outer.items()
        if not name.startswith("ELASTICJOB_") or name in names.ENV_OF_USERS
    }
