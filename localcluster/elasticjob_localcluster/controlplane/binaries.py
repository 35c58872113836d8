"""Finds the programs of the control plane.

An installed program is used if its version fits. Otherwise it is downloaded from its release, where
the network reaches that. Elsewhere, and where ELASTICJOB_FROM_SOURCE is set, it is built once from
its Go module (`builds.py`), so no release server has to be trusted. A program is made under another
name, and its size is written into a file beside it. So an incomplete program is never used.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from elasticjob_localcluster.controlplane.builds import (
    build,
    check_space,
    find_go,
    flags,
    go_environment,
)
from elasticjob_localcluster.controlplane.programs import PROGRAMS, Program
from elasticjob_localcluster.controlplane.releases import DownloadFailed, download, release_of
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import locked, make_directory

FINDING = "ELASTICJOB_FINDING_PROGRAMS"
"""The variable that is set while installed programs are asked for their versions."""


def find_programs(
    cache: Path,
    environ: Mapping[str, str],
    progress: ProgressDisplay,
    programs: Sequence[Program] = PROGRAMS,
    *,
    deferred: Collection[Program] = (),
) -> dict[str, Path]:
    """Return the path of every program by its name.

    Downloads or builds the missing programs, which may take minutes the first time. `environ` names
    the installed programs, and is the environment of builds. A deferred program is not built: it is
    left out of the result instead.
    """
    found: dict[str, Path] = {}
    missing = []
    for program in programs:
        path = _installed_program(program, environ) or cached_program(program, cache)
        if path is None:
            missing.append(program)
        else:
            found[program.name] = path
    if set(missing) <= set(deferred):
        return found
    remedy = "set ELASTICJOB_CACHE to a directory that can be written to"
    make_directory(cache, what="the cache directory", remedy=remedy)
    waiting = "waiting for another elasticjob command that needs the same programs"
    with locked(cache / ".lock", seconds=3600, on_wait=lambda: progress.write(waiting)):
        _make_all(missing, deferred, cache, environ, progress)
    made = {program.name: cached_program(program, cache) for program in missing}
    return found | {name: path for name, path in made.items() if path is not None}


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
            [path, *program.version],
            capture_output=True,
            text=True,
            timeout=30,
            env={**os.environ, FINDING: "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(re.search(program.fits, answer.stdout))


def _cache_path(program: Program, cache: Path) -> Path:
    """Return the program's path in the cache, with a digest of all that its content depends on."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((program.module / name).read_bytes())
    if program.package == ".":
        digest.update((program.module / "main.go").read_bytes())
    digest.update(
        " ".join((*flags(program), program.ldflags, program.package, os.uname().machine)).encode()
    )
    return cache / "bin" / f"{program.name}-{digest.hexdigest()[:16]}" / program.name


def _size_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.size")


def _make_all(
    missing: Sequence[Program],
    deferred: Collection[Program],
    cache: Path,
    environ: Mapping[str, str],
    progress: ProgressDisplay,
) -> None:
    # Another command may have made some of them while this one waited for the lock.
    absent = [program for program in missing if cached_program(program, cache) is None]
    why = "ELASTICJOB_FROM_SOURCE is set"
    if absent and not environ.get("ELASTICJOB_FROM_SOURCE"):
        why = _download_all(absent, cache, progress)
    unbuilt = [program for program in absent if cached_program(program, cache) is None]
    if now := [program for program in unbuilt if program not in deferred]:
        _build_all(now, why, cache, environ, progress)
    for program in unbuilt:
        if program in deferred:
            progress.write(f"{program.name} is built when it is first called")


def _download_all(absent: Sequence[Program], cache: Path, progress: ProgressDisplay) -> str:
    """Download the programs, up to the first one that cannot be had; return why it cannot."""
    for number, program in enumerate(absent, 1):
        release = program.release and release_of(program.name, program.release)
        if not release:
            return f"{program.name} has no release for this machine"
        text = f"downloading {program.name} {program.release} ({number} of {len(absent)})"
        try:
            with progress.step(text) as tick, _partial(program, cache) as partial:
                download(release, partial, tick)
                if not _prints_version(partial, program):
                    raise DownloadFailed(f"{program.name} does not run on this machine")
                _complete(partial, program, cache)
        except DownloadFailed as error:
            progress.write(f"not downloaded: {error}")
            return f"{urlsplit(release.url).hostname} gave no usable {program.name}"
    return ""


def _build_all(
    unbuilt: Sequence[Program],
    why: str,
    cache: Path,
    environ: Mapping[str, str],
    progress: ProgressDisplay,
) -> None:
    go = find_go(cache, environ, progress)
    settings = go_environment(cache, environ)
    check_space(go, cache, settings)
    progress.write(
        f"building {len(unbuilt)} programs from source into {cache}, as {why}; "
        f"{_duration(unbuilt)} on two cores, once"
    )
    files: dict[tuple[object, ...], list[Program]] = {}
    for program in unbuilt:
        key = (program.module, program.package, program.ldflags, program.tags)
        files.setdefault(key, []).append(program)
    for number, programs in enumerate(files.values(), 1):
        names = ", ".join(program.name for program in programs)
        with (
            progress.step(f"building {names} ({number} of {len(files)})") as tick,
            _partial(programs[0], cache) as partial,
        ):
            build(programs, go, partial, settings, tick)
            for program in programs:
                _complete(partial, program, cache)


def _duration(programs: Sequence[Program]) -> str:
    """Return how long a build takes about: the control plane is by far the largest part."""
    return "about five minutes" if "kube-apiserver" in {p.name for p in programs} else "a minute"


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
    path.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("rb+") as file:
        os.fsync(file.fileno())
    path.unlink(missing_ok=True)
    try:
        path.hardlink_to(partial)  # the programs of one package share their file
    except OSError:  # a file system without hard links
        shutil.copy(partial, path)
    _size_file(path).write_text(str(path.stat().st_size))
