"""Opens the job's page in a browser: what it shows, by keyboard, on a phone, and when news stop."""

from __future__ import annotations

import pytest
from elasticjob_api.v1 import job_pb2
from playwright.async_api import Browser

from tests.support.browser import Visit, pages_closed, visit
from tests.support.served_page import answers_of, served_page

pytestmark = [
    pytest.mark.guarantee("page-shows-the-job"),
    pytest.mark.asyncio(loop_scope="session"),  # that of the browser
]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(1)</script>" + "x" * 300


async def drawn(page: Visit, *parts: float) -> list[int]:
    """Return the numbers of painted pixels of the first chart at parts of the shown time."""
    found: list[int] = await page.page.evaluate(
        """parts => {
            const canvas = document.querySelector("#charts canvas"), { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            const columns = parts.map(part => Math.round(52 + part * (width - 60)));
            const rows = [...Array(height).keys()];
            return columns.map(x => rows.filter(y => data[4 * (y * width + x) + 3]).length);
        }""",
        parts,
    )
    return found


async def dark(page: Visit) -> bool:
    """Return whether the first chart has pixels in the color of text: another job's line."""
    found: bool = await page.page.evaluate(
        """() => {
            const canvas = document.querySelector("#charts canvas"), { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return [...data.keys()].some(
                at => at % 4 === 0 && `${data.subarray(at, at + 4)}` === "27,36,48,255");
        }"""
    )
    return found


async def shows_all(page: Visit) -> bool:
    """Return whether the charts show the whole time."""
    button = page.page.locator("[data-range='0']")
    return await button.get_attribute("aria-pressed") == "true"


async def test_texts_of_a_job_are_shown_as_text_also_on_a_phone(browser: Browser) -> None:
    async with served_page() as served, pages_closed(browser):
        served.answers = answers_of(text=HOSTILE)
        for width in (1280, 390):
            page = await visit(browser, served.url, width=width)
            for selector in (
                "#facts", "#charts", "#plans", "#events", "#members", "#datasets", "#scaling",
                "#outcome", "#readout",
            ):  # fmt: skip
                await page.until_text(selector, HOSTILE[:20])
            await page.until_text("#outcome", "saving takes 9% of the training")
            assert await page.page.locator("img").count() == 0
            assert await page.page.locator("script").count() == 1
            assert await page.page.evaluate("document.documentElement.scrollWidth") == width
            await page.page.click("#members tbody tr")
            await page.until_text("#log-lines", f"<b>job-worker-0{HOSTILE}</b>\nred")
            assert page.problems == []


@pytest.mark.thorough
async def test_values_plans_and_members_are_read_by_keyboard_alone(browser: Browser) -> None:
    async with served_page() as served, pages_closed(browser):
        page = await visit(browser, served.url)
        await page.until_text("#readout", "Latest", "Last plan", "more is faster")
        await page.page.focus("#charts")
        keyboard = page.page.keyboard
        await keyboard.press("ArrowRight")
        await page.until_text("#readout", "step 0 ", "world of 1")
        await keyboard.press("]")
        await page.until_text("#readout", "step 50", "job-auto-0 (Auto, Succeeded): more is faster")
        assert await shows_all(page)
        await keyboard.press("+")
        assert not await shows_all(page)
        await page.until_text("#readout", "step 50", "more is faster")
        await keyboard.press("0")
        assert await shows_all(page)
        await page.page.focus("#members tbody button")
        await keyboard.press("ArrowDown")
        await keyboard.press("Enter")
        await page.until_text("#log-title", "job-worker-1")
        await keyboard.press("Escape")
        assert await page.page.is_hidden("#log")
        assert page.problems == []


@pytest.mark.thorough
async def test_an_open_page_shows_changes_and_reads_whole_data_when_there_is_no_stream(
    browser: Browser,
) -> None:
    async with served_page(streams=1) as served, pages_closed(browser):
        first = await visit(browser, served.url)
        await first.until_text("#counts", "12 training")
        second = await visit(browser, served.url)
        await second.until_text("#counts", "12 training")
        served.answers = answers_of(members=3)
        for page in (first, second):
            await page.until_text("#counts", "3 training")
            assert await page.page.locator("#members tbody tr").count() == 3
        served.answers = answers_of(members=120)
        await first.until_text("#counts", "120 training")
        assert await first.page.locator("#members tbody tr").count() == 100
        await first.page.click("#all-members")
        assert await first.page.locator("#members tbody tr").count() == 120
        assert first.problems == []
        assert all("503" in each for each in second.problems)


@pytest.mark.parametrize(
    ("phase", "shown", "color"),
    [
        ("training", "Running", "good"),
        ("waiting", "Starting", "warn"),
        ("Failed", "Failed", "bad"),
        ("Stopped", "Stopped", ""),
    ],
)
async def test_the_page_has_the_words_of_the_list_and_a_stopped_job_is_not_red(
    phase: str, shown: str, color: str, browser: Browser
) -> None:
    async with served_page() as served, pages_closed(browser):
        served.answers = answers_of()
        if phase.islower():
            served.answers.status.phase = job_pb2.JobPhase.Value(f"JOB_PHASE_{phase.upper()}")
        else:
            served.ended = True
            served.answers.report.outcome.phase = phase
        page = await visit(browser, served.url)
        await page.until_text("#phase", shown)
        assert await page.page.get_attribute("#phase", "class") == f"badge {color}"


async def test_a_failed_job_opens_the_log_of_the_process_that_failed_first_on_top(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        served.answers = answers_of(text=HOSTILE)
        served.ended = True
        outcome = served.answers.report.outcome
        outcome.phase = "Failed"
        outcome.completed = served.answers.time
        for pod, reason in (("job-worker-0", "exit code 1"), ("job-worker-3", "exit code 7")):
            outcome.failures.add(
                time=outcome.completed, pod=pod, reason=reason, message=f"ValueError{HOSTILE}"
            )
        served.answers.history.events.add(
            time=outcome.completed,
            reason="ProcessFailed",
            message="job-worker-3 (rank 3) in round 1: exit code 7",
        )
        for width in (1280, 390):
            page = await visit(browser, served.url, width=width)
            await page.until_text(
                "#cause", "job-worker-3 (rank 3) in round 1: exit code 7: ValueError<img"
            )
            await page.until_text("#cause #log-lines", "<b>job-worker-3</b>\nred")
            assert await page.page.evaluate("document.documentElement.scrollWidth") == width
            await page.page.click("#log-close")
            await page.page.click("#members tbody tr")
            await page.until_text("#all-of-them #log-lines", "<b>job-worker-0")
            served.answers.report.goodput += 0.01
            await page.until_text("#goodput", f"{100 * served.answers.report.goodput:.0f} %")
            await page.until_text("#all-of-them #log-lines", "<b>job-worker-0")
            assert page.problems == []


async def test_the_logs_of_all_members_are_searched_and_saved_with_their_ranks(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        page = await visit(browser, served.url)
        await page.page.fill("#find", "step 19")
        await page.page.keyboard.press("Enter")
        await page.until_text("#log-note", "132 lines of 12 members; pod x has been deleted")
        lines = (await page.text("#log-lines")).split("\n")
        assert lines[0] == "[worker-0 rank 0] step 19"
        assert lines[-1] == "[worker-11 rank 11] step 199"
        await page.page.fill("#find", "step")
        await page.page.click("#logs button")
        await page.until_text("#log-note", "1000 lines of 5 members; there are more")
        async with page.page.expect_download() as download:
            await page.page.click("#save")
        saved = await download.value
        text = (await saved.path()).read_text().split("\n")
        assert saved.suggested_filename == "job.log"
        assert (len(text), text[-3]) == (12 * 200 + 2, "[worker-11 rank 11] step 199")
        assert text[-2] == "pod x has been deleted"
        assert page.problems == []


async def test_the_time_line_has_a_gap_where_nothing_trained_and_shares_of_one_time(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        served.answers = answers_of()
        served.answers.report.time.suspended = 3600
        page = await visit(browser, served.url)
        await page.until_text("#charts", "Time went into", "100 % training")
        before, inside, after = await drawn(page, 0.25, 0.505, 0.75)
        assert inside < before / 2 > 0, "the line has a gap where the job waited"
        assert inside < after / 2
        await page.page.focus("#charts")
        await page.page.keyboard.press("]")
        await page.page.keyboard.press("ArrowRight")
        await page.until_text("#charts", "17 % training")
        await page.until_text("#goodput", "75 %")
        await page.until_text("#spent-key", "training 45 min 0 s, 75 %", "suspended 1 h 0 min")
        assert page.problems == []


async def test_over_steps_repeated_ones_count_once_and_a_log_scale_has_positive_values(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        served.answers = answers_of()
        samples = served.answers.history.samples
        for number in range(51, 101):  # the larger world continued from a checkpoint
            samples[number].step = number - 20
        samples[100].metrics["loss"] = -1
        served.answers.report.began = samples[0].time
        served.answers.report.outcome.completed = samples[0].time + 7200
        served.answers.report.member_hours = 6.5432
        page = await visit(browser, served.url)
        await page.until_text("#facts", "Duration\n2 h 0 min", "Member-hours\n6.54")
        assert "Cost" not in await page.text("#facts")
        served.answers.report.cost.amount = 1234.567
        served.answers.report.cost.currency = "EUR"
        await page.until_text("#facts", "Cost\n1\u202f234.57 EUR")
        await page.until_text("#charts", "loss\n-1")
        await page.page.click("[data-axis='log']")
        await page.until(
            "no value", lambda: page.text("#charts"), lambda text: "loss\n-1" not in text
        )
        await page.page.click("[data-axis='steps']")
        await page.page.focus("#charts")
        for _ in range(32):
            await page.page.keyboard.press("ArrowRight")
        await page.until_text("#readout", "step 31 ", "world of 12")
        await page.page.keyboard.press("[")
        await page.until_text("#readout", "more is faster")
        assert page.problems == []


async def test_another_job_is_laid_over_the_charts_by_step_or_from_the_begin_of_both(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        page = await visit(browser, served.url)
        await page.until_text("#charts", "samples/s\n200")
        assert not await dark(page)
        await page.page.focus("#other")
        await page.page.wait_for_selector("#others option[value='earlier']", state="attached")
        assert await page.page.locator("#others option").count() == 1
        await page.page.fill("#other", "earlier")
        await page.page.press("#other", "Enter")
        await page.until_text("#compared", "Dashed: earlier")
        await page.until_text("#charts", "samples/s\n200 · 100", "loss\n0.0099")
        assert await dark(page), "the other job's line is drawn, too"
        await page.page.click("[data-axis='steps']")
        await page.page.focus("#charts")
        await page.page.keyboard.press("]")
        await page.until_text("#readout", "step 50", "more is faster")
        await page.until_text("#charts", "samples/s\n100 · 50", "loss\n0.019608 · 0.038462")
        await page.page.fill("#other", "nobody")
        await page.page.press("#other", "Enter")
        await page.until_text("#compared", "there is no such job")
        await page.until(
            "one job", lambda: page.text("#charts"), lambda text: "samples/s\n200\n" in text
        )
        assert all("503" in each for each in page.problems)


async def test_a_master_that_does_not_say_what_time_went_into_has_no_strip_and_no_gaps(
    browser: Browser,
) -> None:
    async with served_page() as served, pages_closed(browser):
        for sample in served.answers.history.samples:
            sample.ClearField("spent")
        page = await visit(browser, served.url)
        await page.until_text("#charts", "World size")
        assert "Time went into" not in await page.page.inner_text("#charts")
        before, inside = await drawn(page, 0.25, 0.505)
        assert inside > before / 2 > 0
