"""`discover_hosts`: the script with which Horovod discovers the hosts that it can use.

It prints `host:slots`, one a line. A host is the name of a pod, which only the agents' `ssh`
accepts. `--addresses` prints IP addresses of pods instead, and `--hostfile` prints them as `address
slots=slots` for `mpirun`.

Horovod runs it every second and ends the job if it fails. So it answers within `ANSWER_SECONDS`,
without a master by the last known hosts. A training process has no token, so there it asks the
agent; elsewhere in the pod it asks the master. It uses only the standard library.
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.addresses import host_port

from elasticjob_agent import writable_directory
from elasticjob_agent.remote_shell.session import AgentSocket, Refused

ANSWER_SECONDS = 2.0
_ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the hosts; returns 1 only if they were never known."""
    parser = argparse.ArgumentParser(
        prog="discover_hosts", description="Prints the hosts to train on."
    )
    parser.add_argument(
        "--addresses", action="store_true", help="print IP addresses instead of names of pods"
    )
    parser.add_argument("--hostfile", action="store_true", help="print them as mpirun reads them")
    options = parser.parse_args(arguments)
    addresses = options.addresses or options.hostfile
    answer: list[str] = []
    problem: list[str] = ["no answer"]

    def ask() -> None:
        try:
            answer.append(discover(os.environ, addresses=addresses))
        except _ERRORS as error:
            problem[0] = f"{type(error).__name__}: {error}"

    # A thread, because looking up a name can take longer than any time-out set on a socket.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    try:
        cache = _cache_file(os.environ, addresses=addresses)
        if answer:
            _write_cache(cache, answer[0])
            hosts = answer[0]
        else:
            sys.stderr.write(
                f"discover_hosts: no answer, so these are the last known hosts ({problem[0]})\n"
            )
            hosts = cache.read_text()
    except OSError as error:
        if not answer:
            sys.stderr.write(f"discover_hosts: no hosts are known yet ({error})\n")
            return 1
        hosts = answer[0]
    for line in hosts.splitlines():
        host, _, slots = line.rpartition(":")
        print(f"{host.strip('[]')} slots={slots}" if options.hostfile else line)
    return 0


def discover(environment: Mapping[str, str], *, addresses: bool = False) -> str:
    """Return the present hosts, one a line.

    Any failure is an OSError, HTTPException, ValueError or KeyError.
    """
    path = environment.get(names.ENV_SOCKET)
    if path:
        return _from_agent(path, addresses=addresses)
    return _from_master(environment, addresses=addresses)


def _from_agent(path: str, *, addresses: bool) -> str:
    field = "address" if addresses else "name"
    agent = AgentSocket(path, timeout=ANSWER_SECONDS)
    try:
        hosts = agent.call("hosts")["hosts"]
        return "".join(f"{host_port(host[field], host['slots'])}\n" for host in hosts)
    except Refused as error:
        raise OSError(str(error)) from error
    finally:
        agent.close()


def _from_master(environment: Mapping[str, str], *, addresses: bool) -> str:
    service = environment[names.ENV_MASTER_SERVICE]
    host = (
        environment.get(names.service_host_env(service))
        or f"{service}.{environment[names.ENV_NAMESPACE]}.svc"
    )
    context = ssl.create_default_context(cadata=environment[names.ENV_CA])
    connection = _Connection(host, names.HTTP_PORT, context=context, timeout=ANSWER_SECONDS)
    try:
        path = "/hosts?addresses" if addresses else "/hosts"
        connection.request(
            "GET", path, headers={names.TOKEN_METADATA: f"Bearer {environment[names.ENV_TOKEN]}"}
        )
        response = connection.getresponse()
        text = response.read(1 << 20).decode()
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK:
        raise OSError(f"{response.status} {text.strip()}")
    return text


class _Connection(http.client.HTTPSConnection):
    """HTTPS to any address of the master, with a certificate for `names.TLS_SERVER_NAME`."""

    def __init__(self, host: str, port: int, *, context: ssl.SSLContext, timeout: float) -> None:
        super().__init__(host, port, context=context, timeout=timeout)
        self._tls = context

    def connect(self) -> None:
        """Connect, and check the certificate."""
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=names.TLS_SERVER_NAME)


def _cache_file(environment: Mapping[str, str], *, addresses: bool) -> Path:
    """Return the file of the last answer, in a folder that only this user can write to."""
    folder = Path(writable_directory.path(), f"elasticjob-hosts-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} belongs to another user")
    name = environment.get(names.ENV_POD_UID) or "hosts"
    if addresses:
        name += "-addresses"
    return folder / name


def _write_cache(cache: Path, hosts: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=cache.parent, delete=False) as file:
        file.write(hosts)
    Path(file.name).replace(cache)


if __name__ == "__main__":
    sys.exit(main())
