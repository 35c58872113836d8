"""Builds a release's images, with the builder of this machine, for its platforms."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

PLATFORMS = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""The platforms of a release, and the names of their processors."""
_EMULATORS = Path("/proc/sys/fs/binfmt_misc")


def find_builder() -> tuple[str, list[str]]:
    """Return the builder, if there is one, and the platforms whose programs it can run."""
    if shutil.which("docker"):
        inspect = ["docker", "buildx", "inspect", "--bootstrap"]
        done = subprocess.run(inspect, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return "docker", [each for each in PLATFORMS if each in done.stdout]
    own = platform.machine()
    emulated = {name for name in PLATFORMS.values() if (_EMULATORS / f"qemu-{name}").exists()}
    for program in ("podman", "buildah"):
        if shutil.which(program):
            runs = [each for each, name in PLATFORMS.items() if name in emulated | {own}]
            return program, runs
    return "", []


def commands(
    builder: str, platforms: list[str], tags: str, source: Path, archives: Path | None
) -> list[list[str]]:
    """Return the commands that build operator and master, and store or push them.

    Args:
        builder: docker, podman or buildah; VERSION, REVISION and SOURCE_DATE_EPOCH are set for it.
        platforms: the platforms that it builds.
        tags: the images' tags, with {} in place of the name.
        source: the folder with the files of the release.
        archives: a folder for archives in OCI's format; without it, the tags are pushed.
    """
    built: list[list[str]] = []
    for name in ("operator", "master"):
        tag = tags.format(name)
        build = ["--platform", ",".join(platforms), "--file", f"{source}/Dockerfile.{name}"]
        build += ["--build-arg", "VERSION", "--build-arg", "REVISION", str(source)]
        archive = archives and archives / f"{tag.rpartition('/')[2].replace(':', '-')}.oci.tar"
        if builder == "docker":  # which takes the time of the files from SOURCE_DATE_EPOCH
            output = f"type=oci,dest={archive}" if archive else "type=image,push=true"
            built += [["docker", "buildx", "build", "--tag", tag, "--output", output, *build]]
            continue
        epoch = os.environ["SOURCE_DATE_EPOCH"]
        new = f"localhost/elasticjob-{name}:{source.name}"  # nothing of a run that has failed
        target = f"oci-archive:{archive}" if archive else f"docker://{tag}"
        built += [
            [builder, "build", "--manifest", new, "--timestamp", epoch, *build],
            [builder, "manifest", "push", "--all", new, target],
            [builder, "manifest", "rm", new],
        ]
    return built
