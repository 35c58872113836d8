"""Changes the size of a master without Kubernetes by lines of its standard input.

Each line is the number of workers. The master ends at the end of the input, so that it does not
outlive a parent that is killed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from dataclasses import replace

from elasticjob_api import names

from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)

_MOST_DIGITS = 5


async def follow(controller: Controller) -> None:
    """Resize the job to the number of workers in each line; return at the end of the input."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        text = line.decode(errors="replace").strip()
        if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and int(text)):
            log.warning("standard input: %r is not a number of workers", text[:40])
            continue
        size = (controller.facts.sizes or {})[names.ROLE_WORKER]
        sizes = {names.ROLE_WORKER: replace(size, desired=int(text))}
        controller.observe_job(replace(controller.facts, sizes=sizes))
