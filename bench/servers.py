"""The servers that agents load: a master without Kubernetes, and the bare server it is compared with.

Each is a process of its own with the TLS certificate and the token of a real job, made as the operator makes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
from elasticjob_api import names
from elasticjob_operator.certificates import job_secrets

from bench.wire import Connection, connect

_START_SECONDS = 30.0
_PORT = re.compile(rb"gRPC on \S+?:(\d+)")


@dataclass(frozen=True)
class Server:
    """One running server."""

    process: psutil.Process
    port: int

    def cpu_seconds(self) -> float:
        """CPU time it has used since its start, all threads."""
        used = self.process.cpu_times()
        return float(used.user + used.system)

    def rss(self) -> int:
        """Bytes of memory it has in use."""
        return int(self.process.memory_info().rss)

    async def connect(self) -> Connection:
        """Open a connection that shows the job's token."""
        return await connect(self.port, tls=_trust(), token=_secrets()[names.SECRET_TOKEN].decode())


@asynccontextmanager
async def master(*, workers: int, framework: str = "jax") -> AsyncIterator[Server]:
    """Run a master that forms a world as soon as so many workers are there."""
    command = [str(Path(sys.executable).with_name("elasticjob-master")), "--standalone", f"--framework={framework}"]
    command += [f"--min={workers}", "--address=127.0.0.1", "--grpc-port=0", "--http-port=0"]
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        async with _running([*command, f"--state-file={folder}/state"], Path(folder)) as server:
            yield server


@asynccontextmanager
async def bare() -> AsyncIterator[Server]:
    """Run the bare server."""
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        async with _running([sys.executable, "-m", "bench.bare"], Path(folder)) as server:
            yield server


@asynccontextmanager
async def _running(command: list[str], folder: Path) -> AsyncIterator[Server]:
    secrets = {key: value.decode() for key, value in _secrets().items()}
    environment = {
        **os.environ,
        names.ENV_TOKEN: secrets[names.SECRET_TOKEN],
        names.ENV_CA: secrets[names.SECRET_CA],
        names.ENV_TLS_CERT: secrets[names.SECRET_CERT],
        names.ENV_TLS_KEY: secrets[names.SECRET_KEY],
    }
    log = folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(_START_SECONDS):
            while (found := _PORT.search(log.read_bytes())) is None:
                if process.returncode is not None:
                    raise RuntimeError(f"{command[0]} ended with {process.returncode}")
                await asyncio.sleep(0.02)
        yield Server(psutil.Process(process.pid), int(found[1]))
    except BaseException:
        sys.stderr.write(f"end of the log of {command[0]}:\n{log.read_text()[-3000:]}\n")
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@cache
def _secrets() -> dict[str, bytes]:
    return job_secrets("bench", "bench")


@cache
def _trust() -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_secrets()[names.SECRET_CA].decode())
    context.set_alpn_protocols(["h2"])
    return context
