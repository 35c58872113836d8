"""Tells the errors of a storage, such as those of a full disk, from those of the program."""

from __future__ import annotations

import errno
from collections.abc import Iterator

_CAUSES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ESTALE)
_TEXTS = (
    "No space left on device",
    "Disk quota exceeded",
    "PytorchStreamWriter",
    "inline_container",
)
"""PyTorch's writer raises RuntimeError, and that of safetensors an error of its own."""


def is_of_storage(error: Exception) -> bool:
    """Return whether an error says that a storage has not taken what was written."""
    if isinstance(error, OSError):
        return error.errno is not None or not isinstance(error, TimeoutError)
    return any(
        (isinstance(each, OSError) and each.errno in _CAUSES)
        or any(text in str(each) for text in _TEXTS)
        for each in _with_causes(error)
    )


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
