"""Runs the installed agent in an otherwise empty root directory, and next to other Pythons."""

from __future__ import annotations

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import elasticjob_agent
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.agent_process import AGENT, Run
from tests.support.fake_master import FakeMaster

pytestmark = pytest.mark.thorough

GIVEN = {
    "PATH": "/usr/bin:/bin",
    "LD_PRELOAD": "/not/there.so",
    "LD_LIBRARY_PATH": "/not/there",
    "LD_": "",
    "PYTHONHOME": "/not/there",
    "PYTHONPATH": "/mine",
    "EMPTY": "",
    "LC_NAME": "x",
}


def install(
    folder: Path, *before: str, umask: int = 0o022, run_at: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [*before, AGENT, "install", str(folder)]
    command += ["--run-at", str(run_at)] if run_at else []
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, umask=umask
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the agent with a umask that shares nothing with other users."""
    folder = tmp_path_factory.mktemp("volume") / "agent"
    done = install(folder, umask=0o077)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def in_empty_root(installed: Path, tmp_path: Path) -> tuple[str, ...]:
    """Return a command that runs another one where only the installed agent, /proc and /dev exist.

    The user it runs as can write only to /dev/shm.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root: only root can change its root directory")
    root = tmp_path / "root"
    for name in ("proc", "dev"):  # every container has /dev/shm
        (root / name).mkdir(parents=True)
    shutil.copytree(installed, root / installed.relative_to("/"))
    mounts = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"'
    script = f'{mounts} && exec chroot --userspec=12345:12345 "$0" "$@"'
    return ("unshare", "--mount", "sh", "-c", script, str(root))


async def ending(
    fake_master: FakeMaster, run: Run, program: tuple[str, ...], *command: str, **given: str
) -> str:
    """Let an agent run a command to its end, and return the output."""
    agent = await run(*command, program=(*program, "run", "--"), **given)
    try:
        await fake_master.begin(1)
        exited = await fake_master.exited(1)
        await fake_master.order(exit=pb.Exit())
    finally:
        code, out, err = await agent.end()
        print(f"--- the agent's last output ---\n{err}")
    assert (exited.exit_code, code) == (0, 0)
    return str(out)


@pytest.mark.guarantee("image-without-python")
async def test_an_installed_agent_runs_a_command_in_an_empty_root(
    fake_master: FakeMaster,
    run: Run,
    in_empty_root: tuple[str, ...],
    installed: Path,
) -> None:
    script = "import os, ssl; print(sorted(os.listdir('/')), os.path.exists('/bin/sh'))"
    program = (*in_empty_root, str(installed / "bin" / "elasticjob-agent"))
    out = await ending(fake_master, run, program, str(installed / "bin" / "python3"), "-c", script)
    assert out == f"{sorted({'dev', 'proc', installed.parts[1]})} False\n"


def test_an_agent_in_an_image_runs_where_this_image_is_mounted(tmp_path: Path) -> None:
    image = tmp_path / "image"
    mounted = tmp_path / "mounted"
    done = install(image / "agent", run_at=mounted / "agent")
    assert done.returncode == 0, done.stderr
    image.rename(mounted)
    command = [str(mounted / "agent" / "bin" / "elasticjob-agent"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, elasticjob_agent.VERSION), done.stderr


def test_every_module_of_the_agent_loads_in_an_empty_root(
    in_empty_root: tuple[str, ...], installed: Path
) -> None:
    modules = [path.stem for path in Path(elasticjob_agent.__path__[0]).glob("[a-z]*.py")]
    script = (
        "import importlib\n"
        f"for name in {modules}: importlib.import_module('elasticjob_agent.' + name)\n"
        "import bz2, ctypes, decimal, encodings.idna, hashlib, lzma, socket, ssl, uuid, zlib\n"
        "ctypes.CDLL('libgcc_s.so.1')\n"
        "print([line for line in open('/proc/self/maps') if '/' in line and '/agent/' not in line])"
    )
    command = [*in_empty_root, str(installed / "bin" / "python3"), "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", ""), (
        "something is loaded from outside, or not to be had"
    )


@pytest.mark.guarantee("image-without-python")
@pytest.mark.parametrize("where", ["image", "volume"])
async def test_a_command_gets_its_containers_environment_without_the_agents_changes(
    fake_master: FakeMaster,
    run: Run,
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    program = str(installed / "bin" / "elasticjob-agent")
    given = GIVEN
    expected = {}
    if where == "volume":
        expected = {"PYTHONPATH": f"/mine:{installed}/library"}
    else:  # the image's own Python reads some of them
        program = AGENT
        given = {
            name: value
            for name, value in GIVEN.items()
            if name not in ("LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
        }
    out = await ending(fake_master, run, (program,), "cat", "/proc/self/environ", **given)
    got = dict(entry.partition("=")[::2] for entry in out.split("\0") if entry)
    known = {names.service_host_env("job-master")}
    assert {
        name: value
        for name, value in got.items()
        if not name.startswith("ELASTICJOB_") and name not in known
    } == {
        **given,
        **expected,
    }


def test_a_drivers_library_is_found_where_the_image_says(installed: Path, tmp_path: Path) -> None:
    source = next((installed / "lib").glob("libz.so.*"))
    shutil.copyfile(source, tmp_path / "libdriver.so.1")
    script = "from elasticjob_agent import gpu; print(gpu._load('libdriver.so.1')._name)"
    command = [str(installed / "bin" / "python3"), "-I", "-S", "-c", script]
    environment = {"LD_LIBRARY_PATH": f"/not/there:{tmp_path}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{tmp_path}/libdriver.so.1\n", "")


def test_every_user_can_read_and_run_the_installed_files(installed: Path) -> None:
    for path in (installed, *installed.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        program = path.is_dir() or path.parent.name == "bin" or path.name in ("python", "ld.so")
        assert mode == (0o755 if program else 0o644), path


@pytest.mark.guarantee("agent-cannot-be-installed")
def test_installing_again_repairs_a_killed_attempt_and_otherwise_changes_nothing(
    tmp_path: Path,
) -> None:
    left = tmp_path / ".agent.part" / "lib"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    assert install(tmp_path / "agent").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]
    assert not (tmp_path / "agent" / "lib" / "half").exists()
    before = written(tmp_path)
    again = install(tmp_path / "agent")
    assert (again.returncode, again.stdout) == (
        0,
        f"elasticjob-agent: the agent is already in {tmp_path}/agent\n",
    )
    assert written(tmp_path) == before


def written(folder: Path) -> dict[Path, tuple[int, ...]]:
    """Return the attributes of a folder's files that any write changes, and no read."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {
        path: (each.st_ino, each.st_mode, each.st_mtime_ns, each.st_ctime_ns)
        for path, each in found.items()
    }


@pytest.mark.guarantee("agent-cannot-be-installed")
def test_a_full_volume_is_named_and_left_empty(tmp_path: Path) -> None:
    done = install(tmp_path / "agent", "prlimit", "--fsize=1000000")
    assert done.returncode == os.EX_CANTCREAT
    assert f"cannot install into {tmp_path}/agent: " in done.stderr
    assert "with room for 100 MB" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_created_is_named_with_the_user() -> None:
    done = install(Path("/proc/agent"))
    assert done.returncode == os.EX_CANTCREAT
    assert "cannot install into /proc/agent: " in done.stderr
    assert f"user {os.getuid()} can write to" in done.stderr


def test_the_training_library_works_with_every_python_since_3_8(installed: Path) -> None:
    for source in (installed / "library" / "elasticjob").glob("*.py"):
        if source.name == "_standalone.py":
            continue  # as in a program run by hand, without an agent
        ast.parse(source.read_text(), str(source), feature_version=(3, 8))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installed / "library"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    script = (
        "import elasticjob as e, json; e.report_step(1); "
        "print(json.dumps([e.world().size, e.__file__]))"
    )
    for python in pythons():
        done = subprocess.run(
            [python, "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        assert (python, done.returncode, done.stderr) == (python, 0, "")
        assert json.loads(done.stdout) == [1, f"{installed}/library/elasticjob/__init__.py"]


def pythons() -> list[str]:
    """Return this machine's Pythons that start."""
    found = [
        sys.executable,
        *filter(None, (shutil.which(f"python3.{minor}") for minor in range(8, 20))),
    ]
    started = [
        python
        for python in found
        if subprocess.run([python, "-c", ""], check=False).returncode == 0
    ]
    print("tried with", started)
    return started
