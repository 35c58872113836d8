"""Opens text files whose lines are samples.

A shard is a range of lines of one file, found by its byte offset. The training processes count the
lines; the master knows only the number of lines of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from elasticjob._arguments import check_counts
from elasticjob.datasets import open_shards
from elasticjob.shards import Shard, Shards

_MAX_PATH_CHARACTERS = 512 * 1024


@dataclass(frozen=True)
class TextShard(Shard):
    """Lines `start` (included) to `end` (excluded) of a file in one epoch.

        shard = data.take()
        for line in shard.lines():
            train(line)
        data.done(shard)

    Other fields are those of `Shard`.
    """

    path: str = ""
    offset: int = 0

    def lines(self, encoding: str = "utf-8") -> Iterator[str]:
        r"""Yield the lines, without their ends (`\n` or `\r\n`).

        Raises:
            OSError: the file cannot be read.
            UnicodeDecodeError: a line is not in this encoding.
            ValueError: the file has become shorter since its lines were counted.
        """
        with Path(self.path).open("rb") as file:
            file.seek(self.offset)
            count = 0
            for line in islice(file, self.end - self.start):
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
                count += 1
        if count < self.end - self.start:
            raise ValueError(
                f"{self.path} ends in line {self.start + count}; it had {self.end} lines or more"
            )


@dataclass(frozen=True)
class _LineIndex:
    """The lines of a file, and the offset of each shard, for its size and modification time."""

    path: str
    size: int
    changed: int
    lines_per_shard: int
    lines: int
    offsets: list[int]


def text_shards(
    name: str,
    paths: Sequence[str | os.PathLike[str]],
    *,
    lines_per_shard: int,
    epochs: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    prefetch: int = 64,
    restore: bytes | None = None,
    index: str | os.PathLike[str] | None = None,
) -> Shards[TextShard]:
    """Open text files, one sample a line, for the whole job; every process passes the same.

        data = elasticjob.text_shards("texts", ["a.txt", "b.txt"], lines_per_shard=100)
        for shard in data:
            train(list(shard.lines()))
            data.done(shard)

    Args:
        name: the data set's name within the job.
        paths: the files, the same in every process, in the same order.
        lines_per_shard: lines in a shard; the last one of a file may have fewer.
        epochs: the number of times that each line is trained.
        shuffle: whether the shards of all files are leased in another random order in each epoch.
        seed: the seed of these orders.
        prefetch: shards leased ahead; see `shards`.
        restore: the account of a checkpoint; see `shards`.
        index: a folder in which the counts of lines are cached. Without it every process reads
            every file once to count them. With a persistent, shared one, the files are read once
            for the whole job.

    Raises:
        OSError: a file cannot be read.
        AgentError: as for `shards`.
    """
    check_counts(lines_per_shard=lines_per_shard, epochs=epochs)
    if isinstance(paths, str | os.PathLike) or not paths:
        raise ValueError(f"{paths=!r:.80}: there must be files, in a list")
    names = [os.fspath(path) for path in paths]
    length = sum(map(len, names))
    if length > _MAX_PATH_CHARACTERS:
        raise ValueError(
            f"paths have {length} characters in all; at most {_MAX_PATH_CHARACTERS} are possible: "
            "use shorter ones"
        )
    folder = None if index is None else Path(index)
    files = [_line_index(path, lines_per_shard, folder) for path in names]

    def make(*, start: int, part: int, **fields: int) -> TextShard:
        file = files[part]
        offset = file.offsets[start // lines_per_shard]
        return TextShard(start=start, part=part, **fields, path=file.path, offset=offset)

    fields: dict[str, Any] = {
        "parts": [(file.path, file.lines) for file in files],
        "shard_size": lines_per_shard,
        "epochs": epochs,
        "shuffle": shuffle,
        "seed": seed,
    }
    return open_shards(name, fields, make, prefetch=prefetch, restore=restore)


def _line_index(path: str, lines_per_shard: int, folder: Path | None) -> _LineIndex:
    """Return the index of a file: a current one from the cache, or a new one."""
    if folder is None:
        return _count(path, lines_per_shard)
    cache = folder / f"{hashlib.sha256(f'{lines_per_shard} {path}'.encode()).hexdigest()[:32]}.json"
    known = _read(cache)
    status = Path(path).stat()
    if known is None or (known.size, known.changed) != (status.st_size, status.st_mtime_ns):
        known = _count(path, lines_per_shard)
        _write(cache, known)
    return known


def _count(path: str, lines_per_shard: int) -> _LineIndex:
    offsets: list[int] = []
    offset = lines = 0
    with Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        for line in file:
            if lines % lines_per_shard == 0:
                offsets.append(offset)
            offset += len(line)
            lines += 1
    return _LineIndex(path, status.st_size, status.st_mtime_ns, lines_per_shard, lines, offsets)


def _read(cache: Path) -> _LineIndex | None:
    try:
        return _LineIndex(**json.loads(cache.read_text()))
    except (OSError, ValueError, TypeError):
        return None  # it is missing or damaged: the lines are counted again


def _write(cache: Path, index: _LineIndex) -> None:
    """Write the file by a rename, because other processes read and write it."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=cache.parent, prefix=".index-", delete=False) as file:
        json.dump(asdict(index), file)
    Path(file.name).replace(cache)
