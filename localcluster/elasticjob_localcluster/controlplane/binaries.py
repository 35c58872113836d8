"""Finds the programs of the control plane.

An installed program is used if its version fits. Otherwise it is downloaded from its release, where
the network reaches that. Elsewhere, and where ELASTICJOB_FROM_SOURCE is set, it is built once from
its Go module: Go downloads only sources and checks them against go.sum, so no release server has to
be trusted. A program is made under another name and then renamed, and its size is written into a
file beside it. So an incomplete program is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from elasticjob_localcluster.controlplane.go_toolchain import find_go, go_environment
from elasticjob_localcluster.controlplane.programs import KUBERNETES, PROGRAMS, Program
from elasticjob_localcluster.controlplane.releases import DownloadFailed, download, release_of
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines, run_in_foreground
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import locked, make_directory

_GIGABYTE = 10**9
_COLD = 4 * _GIGABYTE
_WARM = 1 * _GIGABYTE
_FLAGS = ("-mod=readonly", "-buildvcs=false", "-trimpath")


def find_programs(
    cache: Path,
    environ: Mapping[str, str],
    progress: ProgressDisplay,
    programs: Sequence[Program] = PROGRAMS,
) -> dict[str, Path]:
    """Return the path of every program by its name.

    Downloads or builds the missing programs, which may take minutes the first time.
    """
    found: dict[str, Path] = {}
    missing = []
    for program in programs:
        path = _installed_program(program, environ) or cached_program(program, cache)
        if path is None:
            missing.append(program)
        else:
            found[program.name] = path
    if not missing:
        return found
    remedy = "set ELASTICJOB_CACHE to a directory that can be written to"
    make_directory(cache, what="the cache directory", remedy=remedy)
    waiting = "waiting for another elasticjob command that needs the same programs"
    with locked(cache / ".lock", seconds=3600, on_wait=lambda: progress.write(waiting)):
        _make_all(missing, cache, environ, progress)
    return found | {program.name: _cache_path(program, cache) for program in missing}


def cached_program(program: Program, cache: Path) -> Path | None:
    """Return the program's path in the cache; None unless it was built completely."""
    path = _cache_path(program, cache)
    try:
        return path if _size_file(path).read_text() == str(path.stat().st_size) else None
    except OSError:
        return None


def _installed_program(program: Program, environ: Mapping[str, str]) -> Path | None:
    search = os.pathsep.join(filter(None, (environ.get("KUBEBUILDER_ASSETS"), environ.get("PATH"))))
    path = shutil.which(program.name, path=search)
    if path is None:
        return None
    if not _prints_version(Path(path), program):
        return None
    # The PATH may name the state directory of a cluster, whose links are removed with the cluster.
    return Path(path).resolve()


def _prints_version(path: Path, program: Program) -> bool:
    """Return whether the file can be executed and is the program in a version that fits."""
    try:
        answer = subprocess.run(
            [path, *program.version], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(re.search(program.fits, answer.stdout))


def _cache_path(program: Program, cache: Path) -> Path:
    """Return the program's path in the cache, with a digest of all that its content depends on."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((program.module / name).read_bytes())
    digest.update(
        " ".join((*_flags(program), program.ldflags, program.package, os.uname().machine)).encode()
    )
    return cache / "bin" / f"{program.name}-{digest.hexdigest()[:16]}" / program.name


def _size_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.size")


def _make_all(
    missing: list[Program], cache: Path, environ: Mapping[str, str], progress: ProgressDisplay
) -> None:
    # Another command may have made some of them while this one waited for the lock.
    absent = [program for program in missing if cached_program(program, cache) is None]
    if absent and not environ.get("ELASTICJOB_FROM_SOURCE"):
        _download_all(absent, cache, progress)
    if unbuilt := [program for program in absent if cached_program(program, cache) is None]:
        _build_all(unbuilt, cache, environ, progress)


def _download_all(absent: Sequence[Program], cache: Path, progress: ProgressDisplay) -> None:
    """Download the programs, up to the first one that cannot be had."""
    for number, program in enumerate(absent, 1):
        release = program.release and release_of(program.name, program.release)
        if not release:
            return
        text = f"downloading {program.name} {program.release} ({number} of {len(absent)})"
        try:
            with progress.step(text) as tick, _partial(program, cache) as partial:
                download(release, partial, tick)
                if not _prints_version(partial, program):
                    raise DownloadFailed(f"{program.name} does not run on this machine")
                _complete(partial, program, cache)
        except DownloadFailed as error:
            progress.write(f"not downloaded: {error}")
            return


def _build_all(
    unbuilt: Sequence[Program], cache: Path, environ: Mapping[str, str], progress: ProgressDisplay
) -> None:
    go = find_go(cache, environ, progress)
    settings = go_environment(cache, environ)
    _check_space(go, cache, settings)
    progress.write(
        f"building {len(unbuilt)} programs from source into {cache}; "
        "about five minutes on two cores, once"
    )
    for number, program in enumerate(unbuilt, 1):
        with progress.step(f"building {program.name} ({number} of {len(unbuilt)})") as tick:
            _build(program, go, cache, settings, tick)


def _build(
    program: Program, go: Path, cache: Path, settings: Mapping[str, str], tick: Callable[[], None]
) -> None:
    with _partial(program, cache) as partial:
        command = [
            str(go),
            "build",
            *_flags(program),
            "-ldflags",
            program.ldflags,
            "-o",
            str(partial),
            program.package,
        ]
        status, output = run_in_foreground(command, cwd=program.module, environ=settings, tick=tick)
        if status != 0:
            raise _failure(program, output)
        _complete(partial, program, cache)


def _flags(program: Program) -> tuple[str, ...]:
    """Return the flags of Go's compiler."""
    return (*_FLAGS, f"-tags={program.tags}") if program.tags else _FLAGS


@contextmanager
def _partial(program: Program, cache: Path) -> Iterator[Path]:
    """Yield the path under which a program is made; nothing is left there."""
    path = _cache_path(program, cache)
    make_directory(
        path.parent,
        what="the cache directory",
        remedy="set ELASTICJOB_CACHE to another one",
        mode=0o755,
    )
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _complete(partial: Path, program: Program, cache: Path) -> None:
    """Put a complete program into the cache."""
    path = _cache_path(program, cache)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    partial.rename(path)
    _size_file(path).write_text(str(path.stat().st_size))


def _failure(program: Program, output: str) -> LocalClusterError:
    detail = last_lines(output, 8)
    if re.search(r"no space left on device|disk quota exceeded", output):
        text = (
            "the disk is full: free about 4 GB, "
            "or set ELASTICJOB_CACHE, GOCACHE, GOMODCACHE and TMPDIR to another one"
        )
    elif re.search(
        r"dial tcp|no such host|proxyconnect|i/o timeout|TLS handshake|module lookup disabled",
        output,
    ):
        text = (
            "Go could not download the sources: check the network, "
            "or set GOPROXY to a module proxy you can reach"
        )
    else:
        text = "the compiler failed; its last lines follow"
    return LocalClusterError(f"could not build {program.name}: {text}", detail=detail)


def _check_space(go: Path, cache: Path, settings: Mapping[str, str]) -> None:
    """Refuse a build that would fill the disk."""
    command = [str(go), "env", "-json", "GOCACHE", "GOMODCACHE"]
    answer = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=dict(settings), cwd="/"
    )
    if answer.returncode != 0:
        raise LocalClusterError(
            "`go env` failed; check the Go installation", detail=last_lines(answer.stderr, 5)
        )
    go_cache, modules = (
        Path(json.loads(answer.stdout)[name]) for name in ("GOCACHE", "GOMODCACHE")
    )
    need = _WARM if (modules / "k8s.io" / f"kubernetes@{KUBERNETES}").is_dir() else _COLD
    for directory in (cache, go_cache, modules):
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < need:
            raise LocalClusterError(
                f"{existing} has {free / _GIGABYTE:.1f} GB free "
                f"and the build takes {need / _GIGABYTE:.0f} GB: free some space, "
                "or set ELASTICJOB_CACHE, GOCACHE and GOMODCACHE to another disk"
            )
