"""Starts one browser for all tests of a process that open a page, as starting it costs the most.

These tests run in the event loop of the session, which is that of the browser.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import open_browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with open_browser() as opened:
        yield opened
