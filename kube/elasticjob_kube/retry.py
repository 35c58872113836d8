"""Repeating a request that the API server is likely to answer differently a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from elasticjob_kube.errors import KubeError, TryLater

T = TypeVar("T")


async def retry(
    call: Callable[[], Awaitable[T]],
    errors: type[KubeError] | tuple[type[KubeError], ...],
    *,
    pauses: Sequence[float],
    unless: Callable[[KubeError], bool] = lambda _: False,
) -> T:
    """Return the result of a call; after an error, pause and call again.

    Args:
        call: makes the request.
        errors: the types of errors after which it is made again; any other error is raised at once.
        pauses: seconds before each further call: it is made `len(pauses) + 1` times at most. If the API server has
            asked to wait (`TryLater.retry_after`), so many seconds are waited instead.
        unless: returns whether an error of these types is raised at once nevertheless.

    Raises:
        KubeError: the error of the last call.
    """
    for pause in pauses:
        try:
            return await call()
        except errors as error:
            if unless(error):
                raise
            await asyncio.sleep(
                (error.retry_after if isinstance(error, TryLater) else None) or pause
            )
    return await call()
