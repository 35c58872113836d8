"""Opens the page of all jobs in a browser: counts, filter, order, and the page without a token."""

from __future__ import annotations

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_dashboard.jobs import ShownJob, shown_job

from tests.support.browser import Visit, open_browser, visit
from tests.support.served_jobs import TOKEN, served_jobs

pytestmark = pytest.mark.guarantee("page-of-all-jobs")


def job(name: str, phase: str, **progress: float) -> ShownJob:
    found = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": {"phase": phase, "progress": progress},
    }
    return shown_job(msgspec.convert(found, ElasticJob))


JOBS = [job("a", "Running"), job("b", "Pending"), job("c", "Retrying"), job("d", "Stopped")]


async def names_of(page: Visit) -> list[str]:
    return await page.page.locator("#jobs tbody tr td:first-child a").all_inner_texts()


async def test_a_count_shows_its_jobs_and_the_filter_is_in_the_address() -> None:
    async with served_jobs(JOBS) as url, open_browser() as browser:
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


async def test_a_click_sorts_by_a_column_and_the_third_gives_the_first_order_again() -> None:
    jobs = [
        job("a", "Running", samplesPerSecond=100.0),
        job("b", "Retrying"),
        job("c", "Running", samplesPerSecond=20.0),
    ]
    async with served_jobs(jobs) as url, open_browser() as browser:
        page = await visit(browser, f"{url}#token={TOKEN}")
        await page.until_text("#counts", "3 jobs")
        shown = []
        for _ in range(4):
            order = await page.page.get_attribute("#jobs th:nth-child(4)", "aria-sort")
            shown.append((order, "".join(await names_of(page))))
            await page.page.click("#jobs th:nth-child(4) button")
        assert shown == [(None, "bac"), ("ascending", "cab"), ("descending", "acb"), (None, "bac")]
        assert page.problems == []


async def test_nothing_is_live_before_a_token_is_given() -> None:
    async with served_jobs(JOBS) as url, open_browser() as browser:
        page = await visit(browser, url)
        await page.page.wait_for_selector("#ask:not([hidden])")
        assert await page.page.is_hidden("#news")
        await page.page.fill("#token", TOKEN)
        await page.page.press("#token", "Enter")
        await page.until_text("#news", "live")
