"""Writes the hosts into files of a launcher, for scripts and programs that read files.

The files follow the hosts that the master publishes.
    hostfile             a line `host:slots` for each, as Horovod's discovery scripts print them
    deepspeed-hostfile   a line `host slots=slots` for each, as DeepSpeed and Open MPI read them
    discover_hosts.sh    prints the hosts, as `discover_hosts` does

A file is replaced by a rename, so a reader never sees half a list.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc.aio
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.v1 import discovery_pb2 as pb
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub

from elasticjob_agent.log import say
from elasticjob_agent.remote_shell import programs

HOROVOD_FORM = "hostfile"
SLOTS_FORM = "deepspeed-hostfile"
SCRIPT = "discover_hosts.sh"
FIRST_SECONDS = 5.0
"""A registered agent waits this time for the first list, so that the launcher finds the files."""
RETRY_SECONDS = 1.0
_START_TIMEOUT = "HOROVOD_START_TIMEOUT"
_ELASTIC_TIMEOUT = "HOROVOD_ELASTIC_TIMEOUT"
_ELASTIC_SECONDS = "600"
"""Horovod's default of the time for which its launcher waits for hosts."""
_MOUNT_POINT = 4
"""The column of mountinfo."""


def folder(wanted: Path, otherwise: Path) -> Path:
    """Return the folder to write to: the wanted one if a volume is mounted there.

    Without a volume it would be a folder of the image, or of the embedded cluster's machine.
    """
    if _is_mounted(wanted) and os.access(wanted, os.W_OK | os.X_OK):
        return wanted
    return otherwise


def _is_mounted(path: Path) -> bool:
    """Return whether the kernel lists a mount there; a volume may share the image's file system."""
    with Path("/proc/self/mountinfo").open() as mounts:
        return any(line.split(" ")[_MOUNT_POINT] == str(path) for line in mounts)


def contents(hosts: Sequence[pb.Host], *, addresses: bool) -> dict[str, str]:
    """Return the text of each file that lists the hosts, by their pods' addresses or names."""
    lines = [(host.address if addresses else host.name, host.slots) for host in hosts]
    return {
        HOROVOD_FORM: "".join(f"{host_port(host, slots)}\n" for host, slots in lines),
        SLOTS_FORM: "".join(f"{host} slots={slots}\n" for host, slots in lines),
    }


class HostFiles:
    """Keeps the files of one launcher up to date.

    `addresses`: the launcher reaches hosts by addresses, not by the agents' `ssh`.
    """

    def __init__(self, channel: grpc.aio.Channel, path: Path, *, addresses: bool) -> None:
        """Write the hosts that the master on this channel publishes into a folder."""
        self._stub = DiscoveryServiceStub(channel)
        self._path = path
        self._addresses = addresses
        self._written = asyncio.Event()
        self._logged = ""

    async def first_list(self) -> None:
        """Wait until the files have been written, at most `FIRST_SECONDS`."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                await self._written.wait()
        except TimeoutError:
            return

    async def run(self) -> None:
        """Follow the master's list, and that of the next master, until cancelled."""
        options = ["--addresses"] if self._addresses else []
        script = shlex.join([*programs.command(programs.DISCOVER_HOSTS), *options])
        self._write({SCRIPT: f'#!/bin/sh\nexec {script} "$@"\n'}, mode=0o755)
        while True:
            try:
                async for published in self._stub.WatchHosts(pb.WatchHostsRequest()):
                    self._write(contents(published.hosts, addresses=self._addresses), mode=0o644)
                    self._written.set()
            except grpc.aio.AioRpcError:
                pass  # the connection to the master logs the reason
            await asyncio.sleep(RETRY_SECONDS)

    def _write(self, texts: dict[str, str], *, mode: int) -> None:
        try:
            for name, text in texts.items():
                part = self._path / f".{name}.{os.getpid()}"
                part.write_text(text)
                part.chmod(mode)
                part.replace(self._path / name)
        except OSError as error:
            if str(error) != self._logged:
                say(f"cannot keep the files with the hosts: {error}")
            self._logged = str(error)


def for_launcher(
    environment: Mapping[str, str], programs_folder: Path, channel: grpc.aio.Channel
) -> tuple[Mapping[str, str], HostFiles | None]:
    """Return the environment with what a launcher needs, and its files of hosts.

    horovodrun has as much time to check its hosts as to wait for them, unless the container sets
    it. Its default of 30 s includes the wait, so a launch on busy nodes would fail. The files are
    in the folder of the programs if no volume is mounted for them.
    """
    mount = environment.get(names.ENV_HOST_FILES)
    if mount or names.ENV_REMOTE_SHELL in environment:
        seconds = environment.get(_ELASTIC_TIMEOUT, _ELASTIC_SECONDS)
        environment = {_START_TIMEOUT: seconds, **environment}
    if names.ENV_REMOTE_SHELL in environment:
        environment = programs.on_path(environment, programs_folder)
    if not mount:
        return environment, None
    path = folder(Path(mount), programs_folder)
    by_address = names.ENV_REMOTE_SHELL not in environment
    files = HostFiles(channel, path, addresses=by_address)
    return {**environment, names.ENV_HOST_FILES: str(path)}, files
