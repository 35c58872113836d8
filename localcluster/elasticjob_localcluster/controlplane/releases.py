"""Downloads programs of the control plane from the servers of their releases.

A download takes seconds, a build minutes. Not every network reaches these servers, so a failure is
no error of the user: the programs are built then. The checksum comes from the server of the
program. It detects a damaged or truncated file; against a false one there is only TLS. Who wants to
trust no release server builds from source, where Go compares all sources with go.sum.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

KUBERNETES_RELEASES = "https://dl.k8s.io/release"
ETCD_RELEASES = "https://github.com/etcd-io/etcd/releases/download"
_CONNECT_SECONDS = 5.0
_MAX_BYTES = 300_000_000
_MAX_SUMS_BYTES = 1 << 20
_CHUNK = 1 << 18
_LEAST_RATE = 512 << 10
"""Bytes per second. All programs take ten minutes at this rate, and a build five."""
_RATE_SECONDS = 10.0
"""How long the rate is measured."""
_LONGEST_SECONDS = 600.0
"""For one file."""
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class DownloadFailed(Exception):
    """A program could not be downloaded; the message says why."""


@dataclass(frozen=True)
class Release:
    """Where a program of a release is: at a URL, or as a `member` of the archive there.

    `checksums` is the URL of the SHA-256 sums: one sum, or a line per file.
    """

    url: str
    checksums: str
    member: str = ""


def release_of(program: str, version: str) -> Release | None:
    """Return where the release of a program for this machine is; None if there is none."""
    machine = _MACHINES.get(os.uname().machine)
    if machine is None or os.uname().sysname != "Linux":
        return None
    if program == "etcd":
        name = f"etcd-{version}-linux-{machine}"
        folder = f"{ETCD_RELEASES}/{version}"
        return Release(f"{folder}/{name}.tar.gz", f"{folder}/SHA256SUMS", f"{name}/etcd")
    url = f"{KUBERNETES_RELEASES}/{version}/bin/linux/{machine}/{program}"
    return Release(url, f"{url}.sha256")


def download(release: Release, path: Path, tick: Callable[[], None]) -> None:
    """Download a program into a file, which others can execute; calls `tick` regularly.

    Raises DownloadFailed if the server is not reached, has no such file, is slow, or sends another
    file than it gives the checksum of.
    """
    name = release.url.rpartition("/")[2]
    try:
        expected = _checksum(release, name, tick)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            found = _fetch(release.url, file, tick)
            if found != expected:
                raise DownloadFailed(f"{name} has the SHA-256 {found}, not {expected}")
            file.seek(0)
            _extract(file, release.member, path)
    except (OSError, http.client.HTTPException, tarfile.TarError, EOFError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadFailed(f"{name}: {why}") from error
    path.chmod(0o755)


def _open(url: str) -> http.client.HTTPResponse:
    # The URLs begin with the constants of this module, so they name no file of this machine.
    answer: http.client.HTTPResponse = urllib.request.urlopen(url, timeout=_CONNECT_SECONDS)  # noqa: S310
    return answer


def _parts(url: str, most_bytes: int, tick: Callable[[], None]) -> Iterator[bytes]:
    """Yield what the URL has, as it arrives.

    Raises DownloadFailed if it is too large, or arrives too slowly.
    """
    size = 0
    begun = since = time.monotonic()
    lately = 0
    with _open(url) as answer:
        while part := answer.read1(_CHUNK):
            tick()
            size += len(part)
            lately += len(part)
            now = time.monotonic()
            if size > most_bytes:
                raise DownloadFailed(f"{url} has more than {most_bytes} bytes")
            if now - begun > _LONGEST_SECONDS:
                raise DownloadFailed(f"{url} has not arrived within {_LONGEST_SECONDS:.0f} s")
            if now - since > _RATE_SECONDS:
                rate = lately / (now - since)
                if rate < _LEAST_RATE:
                    raise DownloadFailed(
                        f"{url} sends {rate / 1024:.0f} KiB/s, less than {_LEAST_RATE >> 10}"
                    )
                since = now
                lately = 0
            yield part


def _checksum(release: Release, name: str, tick: Callable[[], None]) -> str:
    text = b"".join(_parts(release.checksums, _MAX_SUMS_BYTES, tick)).decode("ascii", "replace")
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64})(?: [ *](.+))?", line.strip())
        if match is not None and match[2] in (None, name):
            return match[1]
    raise DownloadFailed(f"{release.checksums} has no SHA-256 of {name}")


def _fetch(url: str, file: BinaryIO, tick: Callable[[], None]) -> str:
    """Write what the URL has into a file; return its SHA-256."""
    digest = hashlib.sha256()
    for part in _parts(url, _MAX_BYTES, tick):
        digest.update(part)
        file.write(part)
    return digest.hexdigest()


def _extract(file: BinaryIO, member: str, path: Path) -> None:
    """Write the program, which may be in an archive, to its path."""
    if not member:
        with path.open("wb") as target:
            shutil.copyfileobj(file, target)
        return
    with tarfile.open(fileobj=file, mode="r:gz") as archive:
        try:
            source = archive.extractfile(member)
        except KeyError:
            source = None
        if source is None:
            raise DownloadFailed(f"the archive contains no file {member}")
        with source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
