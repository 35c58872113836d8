"""Opens the job's page in a browser, and keeps it open for the life of a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api import names
from playwright.async_api import Browser

from tests.support.browser import open_browser, visit
from tests.support.e2e.command_line_user import CommandLineUser
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.scaling_jobs import TRAINER, job

REPORTING = TRAINER.with_name("reporting_training.py")


async def see_the_job_among_all(user: CommandLineUser, browser: Browser) -> None:
    """Open the page of all jobs, and from there the page of a job that trains."""
    with user.dashboard() as url:
        page = await visit(browser, url)
        await page.until_text("#jobs tbody", "digits", "2/2", "Suspend", "Scale")
        await page.page.click("#jobs tbody a")
        await page.until_text("#phase", "Running")
        await page.until_text("#members tbody", "worker-0", "worker-1")
        await page.page.click("#members tbody tr")
        await page.until_text("#log-lines", "step ")
        assert page.problems == []


@pytest.mark.guarantee("page-shows-the-job", "page-of-all-jobs")
@pytest.mark.thorough
async def test_an_open_page_follows_a_job_through_a_scale_out_another_master_and_its_end(
    sandbox: Sandbox, folder: Path
) -> None:
    user = CommandLineUser(sandbox)
    async with open_browser() as browser:
        sandbox.apply(job("digits", folder, command=["python", str(REPORTING), str(folder)]))
        user.out("wait", "digits", "--for=step=1", "--timeout=60")
        with user.dashboard("digits") as url:
            page = await visit(browser, url)
            await page.until_text("#phase", "Running")
            await page.until_text("#news", "live")
            await page.until_text("#charts", "Throughput", "World size", "loss")
            await page.page.click("#members tbody tr")
            await page.until_text("#log-lines", "step ")

            scale_out = {
                "apiVersion": names.API_VERSION,
                "kind": "ScaleOut",
                "metadata": {"name": "more"},
                "spec": {"jobName": "digits", "count": 1},
            }
            sandbox.apply(scale_out)
            await page.until_text("#members tbody", "worker-0", "worker-1")
            await page.until_text("#readout", "world of 2", "Last plan", "ScaleOut")
            await see_the_job_among_all(user, browser)
            await page.until_text("#plans tbody", "Succeeded", "ScaleOut")

            sandbox.kubectl("delete", "pod", "digits-master", "--wait=true")
            await page.until_text("#facts", "Master started\n2 times")
            await page.until_text("#news", "live")

            (folder / "finish").touch()
            await page.until_text("#phase", "Succeeded")
            await page.until_text("#news", "as of")
            assert page.problems == []

            later = await visit(browser, url, width=390, theme="dark")
            await later.until_text("#phase", "Succeeded")
            await later.until_text("#goodput", "%")
            assert "loss" in await later.text("#charts")
            assert later.problems == []
