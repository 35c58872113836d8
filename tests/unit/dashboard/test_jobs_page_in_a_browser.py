"""Opens the page of all jobs in a browser: counts, filter, order, and the page without a token."""

from __future__ import annotations

import time

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.times import format_time
from elasticjob_dashboard.jobs import ShownJob, ShownPool, shown_job, shown_pool
from playwright.async_api import Browser

from tests.support.browser import Visit, pages_closed, visit
from tests.support.played_api import played_job
from tests.support.served_jobs import TOKEN, served_jobs

pytestmark = [
    pytest.mark.guarantee("page-of-all-jobs"),
    pytest.mark.asyncio(loop_scope="session"),  # that of the browser
]


def job(name: str, phase: str, *, created_by: str = "", **progress: float) -> ShownJob:
    found = played_job(phase, name=name, progress=progress)
    if created_by:
        found["metadata"]["annotations"] = {names.ANNOTATION_CREATED_BY: created_by}
    return shown_job(msgspec.convert(found, ElasticJob))


JOBS = [job("a", "Running"), job("b", "Pending"), job("c", "Retrying"), job("d", "Stopped")]


async def names_of(page: Visit) -> list[str]:
    return await page.page.locator("#jobs tbody tr td:first-child a").all_inner_texts()


async def test_a_count_shows_its_jobs_and_the_filter_is_in_the_address(browser: Browser) -> None:
    async with served_jobs(JOBS) as url, pages_closed(browser):
        page = await visit(browser, f"{url}#token={TOKEN}")
        await page.until_text("#counts", "4 jobs")
        await page.page.click("[aria-label='Show Waiting: 2']")
        await page.until_text("#counts", "2 of 4 jobs")
        assert sorted(await names_of(page)) == ["b", "c"]
        assert page.page.url == f"{url}?filter=pending%2C+starting%2C+retrying"
        await page.page.click("[aria-label='Show Waiting: 2']")
        await page.until_text("#counts", "4 jobs")
        assert page.page.url == url
        linked = await visit(browser, f"{url}?filter=stopped#token={TOKEN}")
        await linked.until_text("#counts", "1 of 4 jobs")
        assert await names_of(linked) == ["d"]
        assert linked.page.url == f"{url}?filter=stopped"
        assert await linked.page.get_attribute("[data-filter='stopped']", "aria-pressed") == "true"
        assert [*page.problems, *linked.problems] == []


async def test_who_has_created_a_job_stands_beside_it_and_can_be_filtered(
    browser: Browser,
) -> None:
    jobs = [job("a", "Running", created_by="alice"), job("b", "Running")]
    async with served_jobs(jobs) as url, pages_closed(browser):
        page = await visit(browser, f"{url}?filter=alice#token={TOKEN}")
        await page.until_text("#counts", "1 of 2 jobs")
        assert await names_of(page) == ["a"]
        await page.until_text("#jobs .space", "ns · alice")
        assert page.problems == []


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_click_sorts_by_a_column_and_the_third_gives_the_first_order_again(
    width: int, browser: Browser
) -> None:
    jobs = [
        job("a", "Running", samplesPerSecond=100.0),
        job("b", "Retrying"),
        job("c", "Running", samplesPerSecond=20.0),
    ]
    async with served_jobs(jobs) as url, pages_closed(browser):
        page = await visit(browser, f"{url}#token={TOKEN}", width=width)
        await page.until_text("#counts", "3 jobs")
        assert await page.page.evaluate("document.documentElement.scrollWidth") == width
        shown = []
        for _ in range(4):
            order = await page.page.get_attribute("#jobs th:nth-child(4)", "aria-sort")
            shown.append((order, "".join(await names_of(page))))
            await page.page.click("#jobs th:nth-child(4) button")
        assert shown == [(None, "bac"), ("ascending", "cab"), ("descending", "acb"), (None, "bac")]
        assert page.problems == []


async def test_nothing_is_live_before_a_token_is_given(browser: Browser) -> None:
    async with served_jobs(JOBS) as url, pages_closed(browser):
        page = await visit(browser, url)
        await page.page.wait_for_selector("#ask:not([hidden])")
        assert await page.page.is_hidden("#news")
        await page.page.fill("#token", TOKEN)
        await page.page.press("#token", "Enter")
        await page.until_text("#news", "live")


def pool(name: str, **status: object) -> ShownPool:
    found = {"metadata": {"name": name, "namespace": "ns"}, "status": status}
    return shown_pool(msgspec.convert(found, ElasticPool))


async def test_each_pool_has_what_is_used_who_waits_and_its_last_plan_also_on_a_phone(
    browser: Browser,
) -> None:
    act = "night 2: ElasticPool gpus is full, and urgent (0 of 2 members, priority 1000) waits"
    pools = [
        pool("idle", used="cpu 1/4"),
        pool("unknown", message="no capacity is known"),
        pool(
            "gpus",
            used="nvidia.com/gpu 16/16, memory 512Gi/1024Gi",
            waiting=3,
            longestWaiting="urgent: waits for room for 2 members in ElasticPool gpus",
            lastAct=act,
            lastActTime=format_time(time.time() - 4 * 86_400 - 3600),
        ),
    ]
    async with served_jobs(JOBS, pools) as url, pages_closed(browser):
        page = await visit(browser, f"{url}#token={TOKEN}", width=390)
        await page.until_text("#counts", "4 jobs")
        cells = await page.page.locator("#pools tbody td").all_text_contents()
        waits = "3, first urgent: waits for room for 2 members in ElasticPool gpus"
        used = "nvidia.com/gpu 16/16, memory 512Gi/1024Gi"
        assert cells[:4] == ["ns/gpus", used, waits, f"4 d ago: {act}"]
        assert cells[4:8] == ["ns/idle", "cpu 1/4", "", ""]
        assert cells[8:] == ["ns/unknown", "no capacity is known", "", ""]
        assert await page.page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.problems == []


async def test_a_page_without_pools_says_nothing_of_them(browser: Browser) -> None:
    async with served_jobs(JOBS) as url, pages_closed(browser):
        page = await visit(browser, f"{url}#token={TOKEN}")
        await page.until_text("#counts", "4 jobs")
        assert await page.page.is_hidden("#shared")
