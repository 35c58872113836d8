"""Checks both pages with axe-core, in both themes, on a screen and on a phone."""

from __future__ import annotations

from importlib.resources import files
from typing import Literal

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_dashboard.jobs import shown_job, shown_pool
from playwright.async_api import Browser

from tests.support.browser import Visit, pages_closed, visit
from tests.support.played_api import played_job
from tests.support.served_jobs import TOKEN, served_jobs
from tests.support.served_page import served_page

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of the browser
SCREENS = pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 390)])
PHASES = ("Running", "Pending", "Failed", "Stopped", "Suspended", "Succeeded")


async def findings(page: Visit) -> list[tuple[str, list[str]]]:
    """Return the rules that are broken, each with the elements that break it."""
    await page.page.evaluate(AXE)
    found = await page.page.evaluate("axe.run()")
    return [
        (rule["help"], [node["html"] for node in rule["nodes"]]) for rule in found["violations"]
    ]


@SCREENS
@pytest.mark.guarantee("page-shows-the-job")
async def test_axe_finds_nothing_in_a_jobs_page(
    theme: Literal["light", "dark"], width: int, browser: Browser
) -> None:
    async with served_page() as served, pages_closed(browser):
        page = await visit(browser, served.url, width=width, theme=theme)
        await page.until_text("#charts", "World size")
        await page.page.click("#members tbody tr")
        await page.page.wait_for_selector("#log:not([hidden])")
        assert await findings(page) == []


@SCREENS
@pytest.mark.guarantee("page-of-all-jobs")
async def test_axe_finds_nothing_in_the_page_of_all_jobs_with_and_without_a_token(
    theme: Literal["light", "dark"], width: int, browser: Browser
) -> None:
    jobs = [played_job(phase, name=phase.lower(), message="why") for phase in PHASES]
    shown = [shown_job(each) for each in msgspec.convert(jobs, list[ElasticJob])]
    pools = [
        {
            "metadata": {"name": f"p{waiting}", "namespace": "ns"},
            "status": {
                "used": "cpu 3/4",
                "waiting": waiting,
                "longestWaiting": "a: waits for room for 2 members in ElasticPool p1",
                "lastAct": "a 2: full",
                "lastActTime": "2026-01-01T00:00:00Z",
            },
        }
        for waiting in range(2)
    ]
    found = [shown_pool(each) for each in msgspec.convert(pools, list[ElasticPool])]
    async with served_jobs(shown, found) as url, pages_closed(browser):
        page = await visit(browser, f"{url}#token={TOKEN}", width=width, theme=theme)
        await page.until_text("#counts", "6 jobs")
        await page.until_text("#pools", "ns/p1", "cpu 3/4")
        stranger = await visit(browser, url, width=width, theme=theme)
        await stranger.page.wait_for_selector("#ask:not([hidden])")
        assert [await findings(each) for each in (page, stranger)] == [[], []]
