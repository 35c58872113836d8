"""Searches for the job's token from the training process, as different users."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names

from tests.support.agent_process import AGENT, agent_environment
from tests.support.master_process import TOKEN, certificates, run_master
from tests.support.thorough import some_of
from tests.support.wait import SECONDS

SEARCH = """
import ctypes, json, os, sys
token, agent = sys.argv[1][::-1].encode(), os.getppid()

def read(path):
    with open(path, "rb") as file:
        return file.read()

def memory(pid):
    with open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in read(f"/proc/{pid}/maps").decode().splitlines():
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            if line.split()[1].startswith("rw"):
                try:
                    file.seek(start)
                    yield file.read(end - start)
                except (OSError, OverflowError, ValueError):
                    continue

found, unreadable = [], []
for pid in [pid for pid in os.listdir("/proc") if pid.isdigit()]:
    for name in ("environ", "cmdline"):
        try:
            content = read(f"/proc/{pid}/{name}")
        except OSError:
            unreadable += [name] if int(pid) == agent else []
            continue
        if int(pid) == agent and name == "environ" and b"\\0\\0" in content:
            found.append("a gap that others take for the end of the environment")
        own = int(pid) in (agent, os.getpid())
        in_pod = own or os.environ["ELASTICJOB_POD_UID"].encode() in content
        if in_pod and token in content:
            found.append(f"{name} of {pid}")
try:
    if any(token in part for part in memory(agent)):
        found.append("memory of the agent")
except OSError as error:
    unreadable.append("mem")
for name in os.listdir("/proc/self/fd"):
    if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
        found.append(f"descriptor {name} {os.readlink(f'/proc/self/fd/{name}')}")
dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
result = {"found": found, "unreadable": unreadable, "dumpable": dumpable}
result["names"] = sorted(os.environ)
print("FOUND", json.dumps(result))
"""
NOBODY = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups")
_CAPABILITIES = (
    "chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,"
    "+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)
ROOT_OF_A_CONTAINER = ("setpriv", f"--bounding-set=-all,+{_CAPABILITIES}", "--inh-caps=-all")
"""Prefix for a command of root with the capabilities that containerd gives to a container."""


async def search(
    folder: Path, address: str, agent: str, python: str, *before: str
) -> dict[str, Any]:
    """Run an agent below the given command, and the search in its training process.

    Return the search's result.
    """
    credentials = {
        names.ENV_TOKEN: TOKEN,
        names.ENV_CA: certificates()[0],
        names.ENV_PEER_IDENTITY: f"the agents' key: {TOKEN}",
    }
    options = ("--standalone", "--framework=jax", "--min=1", "--workers=1")
    async with run_master(folder, *options, ports=(names.GRPC_PORT, 0), address=address):
        process = await asyncio.create_subprocess_exec(
            *(*before, agent, "run", "--", python, "-c", SEARCH, TOKEN[::-1]),
            # With its own UID, because agents of other tests have the same token.
            env=agent_environment(credentials, master=address)
            | {names.ENV_POD_UID: str(uuid.uuid4())},
            stdout=subprocess.PIPE,
            cwd="/",
        )
        out, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    (line,) = [line for line in out.decode().splitlines() if line.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Create a folder whose content every user may run, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.guarantee("only-the-job-reaches-its-master")
@pytest.mark.parametrize(
    ("who", "agent"),
    some_of(
        [
            pytest.param("the user of the tests", "of the image"),
            pytest.param("root of a container", "of the image"),
            pytest.param("nobody", "installed"),
        ],
        first=1,
    ),
)
async def test_the_training_process_finds_the_token_nowhere(
    tmp_path: Path, network: str, public_folder: Path, who: str, agent: str
) -> None:
    before: tuple[str, ...] = ()
    if who != "the user of the tests":
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            pytest.skip("needs root and setpriv: only root can become another user")
        before = NOBODY if who == "nobody" else ROOT_OF_A_CONTAINER
    program = AGENT
    python = sys.executable
    if agent == "installed":
        folder = public_folder / "agent"
        subprocess.run([AGENT, "install", str(folder)], check=True, timeout=60)
        program = str(folder / "bin" / "elasticjob-agent")
        python = str(folder / "bin" / "python3")
    result = await search(tmp_path, f"{network}.1", program, python, *before)
    assert result["dumpable"] == 1, "core dumps and debuggers of the training process do not work"
    assert not {names.ENV_TOKEN, names.ENV_PEER_IDENTITY} & set(result["names"])
    if who == "the user of the tests" and os.geteuid() == 0:
        # With all capabilities, root can read the memory of any process. Only absent data is
        # hidden.
        assert result["found"] in ([], ["memory of the agent"])
    else:
        assert result["found"] == []
        assert result["unreadable"] == ["environ", "mem"]
