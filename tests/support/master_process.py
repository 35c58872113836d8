"""Runs the master as a process, for the tests of its services."""

from __future__ import annotations

import asyncio
import datetime
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import grpc
import grpc.aio
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate
from elasticjob_api import names
from elasticjob_kube import x509

from tests.support.self_signed import self_signed
from tests.support.wait import SECONDS, until
from tests.support.warm_process import WarmProcess, start_warm

TOKEN = "a-token-of-these-tests"
STANDALONE = ("--standalone", "--framework=jax", "--min=1", "--workers=2")
"""Options of a master without Kubernetes whose first world has two members."""


@cache
def certificates() -> tuple[str, str]:
    """Return a self-signed certificate for the master's names, and its key."""
    pair = self_signed(names.TLS_SERVER_NAME)
    return pair.certificate_pem.decode(), pair.key_pem.decode()


@cache
def peer_identity() -> str:
    """Return the agents' certificate and key for connections to each other."""
    certificate, key = certificates()
    authority = x509.KeyPair(
        load_pem_x509_certificate(certificate.encode()),
        cast(ec.EllipticCurvePrivateKey, load_pem_private_key(key.encode(), None)),
    )
    pair = x509.issue(
        authority,
        x509.subject(names.TLS_PEER_NAME),
        valid=datetime.timedelta(days=1),
        purposes=(x509.SERVER, x509.CLIENT),
        hosts=(names.TLS_PEER_NAME,),
    )
    return (pair.certificate_pem + pair.key_pem).decode()


def channel_to(target: str, token: str | None = TOKEN) -> grpc.aio.Channel:
    """Return a channel to a master that shows a token."""
    credentials = grpc.ssl_channel_credentials(certificates()[0].encode())
    if token is not None:
        credentials = grpc.composite_channel_credentials(
            credentials, grpc.access_token_call_credentials(token)
        )
    options = [
        ("grpc.ssl_target_name_override", names.TLS_SERVER_NAME),
        ("grpc.enable_http_proxy", 0),
    ]
    return grpc.aio.secure_channel(target, credentials, options=options)


@dataclass
class Master:
    """One running master."""

    process: WarmProcess
    log: Path
    grpc_port: int = 0
    http_port: int = 0
    ends_with: int = names.EXIT_DRAINED
    address: str = "127.0.0.1"
    insecure: bool = False

    def channel(self, token: str | None = TOKEN) -> grpc.aio.Channel:
        """Return a channel that shows a token."""
        if self.insecure:
            return grpc.aio.insecure_channel(f"{self.address}:{self.grpc_port}")
        return channel_to(f"{self.address}:{self.grpc_port}", token)

    async def logged(self, text: str) -> None:
        """Wait until its log contains a text."""
        await until(f"{text!r} in its log", self.log.read_text, lambda log: text in log)

    async def kill(self) -> tuple[int, int]:
        """Kill it, as the loss of its node would; return its ports, for the next master."""
        self.process.kill()
        await self.process.wait()
        return self.grpc_port, self.http_port


@asynccontextmanager
async def run_master(
    folder: Path,
    *options: str,
    env: dict[str, str] | None = None,
    ports: tuple[int, int] = (0, 0),
    address: str = "127.0.0.1",
) -> AsyncIterator[Master]:
    """Start a master and wait until it serves.

    After the block send SIGTERM, and require the expected exit code.
    """
    certificate, key = certificates()
    environment = {
        **os.environ,
        names.ENV_TOKEN: TOKEN,
        names.ENV_TLS_CERT: certificate,
        names.ENV_TLS_KEY: key,
        **(env or {}),
    }
    log = folder / "master.log"
    command = [
        *options,
        f"--address={address}",
    ]
    command += [f"--grpc-port={ports[0]}", f"--http-port={ports[1]}"]
    with log.open("ab") as output:
        start = output.tell()
        process = start_warm("elasticjob-master", *command, env=environment, output=output)
    master = Master(process, log, address=address, insecure="--insecure" in options)
    if "--standalone" in options:
        master.ends_with = 0
    try:
        async with asyncio.timeout(SECONDS):
            while not (
                found := re.search(
                    rb"gRPC on \S+:(\d+), HTTP on port (\d+)", log.read_bytes()[start:]
                )
            ):
                assert process.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        master.grpc_port = int(found[1])
        master.http_port = int(found[2])
        yield master
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(SECONDS):
                await process.wait()
    if process.returncode != -signal.SIGKILL:
        assert process.returncode == master.ends_with, log.read_text()
