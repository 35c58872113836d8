"""`elasticjob-agent install DIR`: copies the agent so that it runs in any image.

An init container does it for its pod. The agent's image does it for pods that mount this image:
there DIR is in the image, and `--run-at` names the path that it has in those pods.

The worker's image may have another Python or none, another C library, no shell, no files at all.
So everything from the interpreter down to the dynamic loader is copied from the agent's image:

    bin/elasticjob-agent, discover_hosts, python3   static executables, made by elf_launcher.py
    bin/py-spy                                      the program that reads stacks, also static
    lib/ld.so, lib/*.so.*, lib/python               the loader, the libraries, the interpreter
    lib/python3.X/                                  the standard library and the agent, compiled
    library/                                        `import elasticjob` for any Python

DIR is made by one rename, so it never exists in part. If it exists, nothing is done.
"""

from __future__ import annotations

import importlib.util
import os
import py_compile
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from elasticjob_api import names

from elasticjob_agent import LIBRARY
from elasticjob_agent.elf_launcher import MACHINES, launcher

_PACKAGES = ("elasticjob_agent", "elasticjob_processes", *names.LIBRARY_PACKAGES)
_DEPENDENCIES = ("grpcio", "protobuf", "psutil", "typing_extensions")
_EXCLUDED = re.compile(
    r"__phello__|__pycache__|config-.*|curses|dbm|dist-packages|distutils|ensurepip|idlelib|lib2to3|pydoc_data|"
    r"site-packages|sqlite3|tests?|tkinter|turtledemo|unittest|venv|wsgiref|xmlrpc|"
    r"antigravity|doctest|pdb|pydoc|this|turtle|"
    r"_codecs_.*|_crypt|_ctypes_test|_curses.*|_g?dbm|_multibytecodec|_sqlite3|_test.*|_tkinter|_?xx.*|audioop|nis|"
    r"ossaudiodev|readline"
)
"""Parts of the standard library that the agent does not need, or that need further libraries."""
_OPENED_LATER = re.compile(r"lib(dl|gcc_s|m|nss_dns|nss_files|pthread|resolv|rt|util)\.so\.[0-9]+")
"""Parts of the C library that the agent, or a driver's library, opens at run time."""
_PT_INTERP = 3


class InstallError(Exception):
    """The agent cannot be installed from here, or into this directory."""


def install(target: Path, run_at: Path | None = None) -> str:
    """Install the agent into a new directory; return a message, or raise InstallError.

    Args:
        target: the new directory.
        run_at: its path in the container that runs the agent; None if that is `target`.
    """
    target = Path.cwd() / target  # not resolved: the other container has other links
    if target.exists():
        return f"the agent is already in {target}"
    part = target.with_name(f".{target.name}.part")
    os.umask(0o022)  # the user's container may run as any user
    try:
        shutil.rmtree(part, ignore_errors=True)  # of an attempt that was killed
        part.mkdir(parents=True)
        _fill(part, run_at or target)
        part.rename(target)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise InstallError(
            f"cannot install into {target}: {error}; it must be on a volume "
            f"that user {os.getuid()} can write to, with room for 100 MB"
        ) from error
    size = sum(path.lstat().st_size for path in target.rglob("*"))
    return f"installed the agent into {target}: {size / 1e6:.1f} MB"


def _fill(part: Path, run_at: Path) -> None:
    """Write the agent that runs at the path `run_at` into the directory `part`."""
    machine = os.uname().machine
    if machine not in MACHINES:
        raise InstallError(
            f"the agent can be installed on {' and '.join(MACHINES)}, and this is {machine}"
        )
    interpreter = Path(sys.executable).resolve()
    modules = part / sys.platlibdir / f"python{sys.version_info.major}.{sys.version_info.minor}"
    _copy_modules(modules)
    for package in names.LIBRARY_PACKAGES:
        _copy_tree(_folder(package), part / LIBRARY / package)
    native = part / "lib"
    native.mkdir(exist_ok=True)
    _copy_executable(interpreter, native / "python")
    loader = _loader(interpreter)
    _copy_executable(loader, native / "ld.so")
    for name, path in _libraries(loader, interpreter, [*modules.rglob("*.so")]):
        shutil.copyfile(path, native / name)
    _write_launchers(part / "bin", run_at, machine)
    py_spy = Path(sys.executable).with_name("py-spy")  # a static program
    if py_spy.exists():
        _copy_executable(py_spy, part / "bin" / "py-spy")


def _write_launchers(folder: Path, run_at: Path, machine: str) -> None:
    native = run_at / "lib"
    python = run_at / "bin" / "python3"
    # The interpreter finds its modules, and the program for further interpreters, by argv[0].
    started = [native / "ld.so", "--library-path", native, "--argv0", python, native / "python"]
    programs = {
        "python3": [],
        "elasticjob-agent": ["-I", "-S", "-m", "elasticjob_agent.main"],
        "discover_hosts": ["-I", "-S", "-m", "elasticjob_agent.discover_hosts"],
    }
    folder.mkdir()
    for name, arguments in programs.items():
        program = folder / name
        program.write_bytes(launcher(machine, [*map(str, started), *arguments]))
        program.chmod(0o755)


def _copy_modules(target: Path) -> None:
    """Copy the standard library and the packages that the agent imports, side by side."""
    _copy_compiled(Path(sysconfig.get_path("stdlib")), target)
    for package in _PACKAGES:
        _copy_compiled(_folder(package), target / package)
    for name in _DEPENDENCIES:
        found = distribution(name)
        for file in found.files or ():
            outside = ".." in file.parts or file.parts[0].endswith(".dist-info")
            if not outside and not any(_EXCLUDED.fullmatch(part) for part in file.parts):
                _copy_module(Path(str(found.locate_file(file))), target / file)


def _copy_compiled(source: Path, target: Path) -> None:
    for folder, folders, files in os.walk(source):
        folders[:] = [name for name in folders if not _EXCLUDED.fullmatch(name)]
        for name in files:
            if not _EXCLUDED.fullmatch(name.partition(".")[0]):
                path = Path(folder, name)
                _copy_module(path, target / path.relative_to(source))


def _copy_module(source: Path, target: Path) -> None:
    """Copy a module's file, Python as bytecode without its source, which halves the size."""
    if not source.is_file() or source.suffix not in (".py", ".so", ".pem"):
        return  # a listed file may be missing: some images delete parts of packages
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix != ".py":
        shutil.copyfile(source, target)
        return
    compiled = target.with_suffix(".pyc")
    cached = Path(importlib.util.cache_from_source(str(source)))
    if _is_current(cached, source):
        shutil.copyfile(cached, compiled)
    else:
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), cfile=str(compiled), doraise=True, invalidation_mode=mode)


def _is_current(cached: Path, source: Path) -> bool:
    """Return whether bytecode was compiled by this interpreter from this source."""
    try:
        with cached.open("rb") as file:
            magic, flags, time, size = struct.unpack("<4sIII", file.read(16))
    except (OSError, struct.error):
        return False
    of_source = source.stat()
    dated = (time, size) == (int(of_source.st_mtime) & 0xFFFFFFFF, of_source.st_size & 0xFFFFFFFF)
    return magic == importlib.util.MAGIC_NUMBER and (flags != 0 or dated)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(
        source,
        target,
        ignore=shutil.ignore_patterns("__pycache__", "*.pyi"),
        copy_function=shutil.copyfile,
    )


def _copy_executable(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o755)


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise InstallError(f"the package {package} is not installed here")
    return Path(found.submodule_search_locations[0])


def _loader(program: Path) -> Path:
    """Return the dynamic loader that a program names."""
    with program.open("rb") as file:
        ident = file.read(64)
        if ident[:5] != b"\x7fELF\x02":
            raise InstallError(
                f"{program} is not a 64-bit ELF program, so the agent cannot be installed from it"
            )
        (offset,) = struct.unpack_from("<Q", ident, 32)
        size, count = struct.unpack_from("<HH", ident, 54)
        file.seek(offset)
        segments = file.read(size * count)
        for start in range(0, size * count, size):
            kind, _, place, _, _, length, _, _ = struct.unpack_from("<IIQQQQQQ", segments, start)
            if kind == _PT_INTERP:
                file.seek(place)
                return Path(file.read(length).rstrip(b"\0").decode()).resolve()
    raise InstallError(
        f"{program} names no dynamic loader, so the agent cannot be installed from it"
    )


def _libraries(loader: Path, interpreter: Path, modules: list[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and path of every library that the loader finds for the interpreter."""
    command = [
        loader,
        "--argv0",
        "python",
        "--preload",
        " ".join(map(str, modules)),
        "--list",
        interpreter,
    ]
    listed = subprocess.run(
        [str(argument) for argument in command], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        why = listed.stderr.strip()
        raise InstallError(
            f"{loader} cannot list the libraries of {interpreter}; glibc 2.33 or newer does: {why}"
        )
    folder = None
    for line in listed.stdout.splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow and place.startswith("/"):  # a library that is not found is not needed here
            path = Path(place.rpartition(" (")[0])
            if name == "libc.so.6":
                folder = path.parent
            if path.resolve() != loader:
                yield Path(name).name, path
    if folder is None:
        raise InstallError(
            f"{interpreter} is not linked with glibc, so the agent cannot be installed from it"
        )
    for path in folder.iterdir():
        if _OPENED_LATER.fullmatch(path.name):
            yield path.name, path
