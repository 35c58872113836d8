"""Repeats a request that the API server is likely to answer differently a moment later."""

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
        errors: the errors after which the call is repeated; any other error is raised at once.
        pauses: seconds before each repetition; there are at most `len(pauses)`. A pause that the
            API server asks for (`TryLater.retry_after`) is used instead.
        unless: returns whether an error is raised at once although it has one of these types.

    Raises:
        KubeError: the error of the last call.
    """
    for pause in pauses:
        try:
            return await call()
        except errors as error:
            if unless(error):
                raise
            if isinstance(error, TryLater) and error.retry_after:
                pause = error.retry_after
            await asyncio.sleep(pause)
    return await call()
