"""Tests the restart rules of the whole cluster, which apply after each job's own rules.

Invalid rules must not affect any job.
"""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import RestartRule
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import Refused, TryLater
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_operator.core.members.backoff import spread_seconds
from elasticjob_operator.core.members.cluster_rules import MAX_RULES, read_rules
from elasticjob_operator.events import Events
from elasticjob_operator.rules_watch import RulesWatch
from elasticjob_operator.store import Store

from tests.support.job_cluster import end_training, new_cluster, pod_names, reconcile_now, status_of
from tests.support.simulator.fake_kube import FakeKube


@pytest.mark.parametrize(
    ("own", "cluster_wide", "action"),
    [
        ([], [{"action": "FailJob", "exitCodes": [7]}], "FailJob"),
        (
            [{"action": "Ignore", "exitCodes": [7]}],
            [{"action": "FailJob", "exitCodes": [7]}],
            "Ignore",
        ),
        ([], [{"action": "FailJob", "exitCodes": [8]}], "Restart"),
        (
            [],
            [{"action": "Ignore", "containers": ["train"], "messagePattern": "last w.rds"}],
            "Ignore",
        ),
        ([], [{"action": "Ignore", "containers": ["other"]}], "Restart"),
    ],
)
async def test_the_jobs_rules_come_first_then_the_clusters_then_the_default(
    own: list[Json], cluster_wide: list[Json], action: str
) -> None:
    cluster = new_cluster(replicas=2, worker={"restartRules": own})
    cluster.operator.store.restart_rules = read_rules(cluster_wide)
    await cluster.start()
    end_training(cluster, "job-worker-0", 7)
    await reconcile_now(cluster)
    assert status_of(cluster)["failures"][0]["action"] == action
    assert (status_of(cluster)["phase"] == "Failed") == (action == "FailJob")


@pytest.mark.parametrize("least", [400, 0])
async def test_a_restart_waits_for_a_random_time_between_the_delays_of_its_rule(least: int) -> None:
    rule = {
        "action": "Ignore",
        "exitCodes": [201],
        "minDelaySeconds": least,
        "maxDelaySeconds": 900,
    }
    cluster = new_cluster(replicas=2, worker={"restartRules": [rule]})
    await cluster.start()
    for name in ("job-worker-0", "job-worker-1"):
        end_training(cluster, name, 201)
    ended = cluster.now
    await reconcile_now(cluster)
    back_off = status_of(cluster)["replicaStatuses"]["worker"]["backOff"]
    waits = [parse_time(wait["until"]) - ended for wait in back_off.values()]
    assert len(set(waits)) == 2, "they do not come back together"
    assert all(least - 1 <= wait <= 901 for wait in waits)
    assert "restarts: worker" in status_of(cluster)["message"]
    cluster.now = ended + min(waits) - 1
    await reconcile_now(cluster)
    assert sorted(pod_names(cluster)) == ["job-worker-0", "job-worker-1"], "those that have ended"
    cluster.now = ended + max(waits) + 1
    await reconcile_now(cluster)
    assert sorted(pod_names(cluster)) == ["job-worker-0-1", "job-worker-1-2"]
    cluster.check_final_state()


def test_delays_are_spread_over_all_between_their_bounds() -> None:
    found = {spread_seconds(60, 63, f"pod-{number}") for number in range(100)}
    assert found == {60, 61, 62, 63}
    assert spread_seconds(60, None, "pod") == spread_seconds(60, 10, "pod") == 60


GOOD = {"action": "Restart", "exitCodes": [3]}


@pytest.mark.guarantee("invalid-cluster-rules")
@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "not a list of rules"),
        ({"action": "Restart"}, "not a list of rules"),
        ([GOOD] * (MAX_RULES + 1), f"65 rules are more than {MAX_RULES}"),
        (
            [GOOD, {"action": "FailJob", "exitCode": [3]}],
            r"^\[1\]\.exitCode: no field of a rule; the fields are action, ",
        ),
        (
            [{"action": "Explode", "exitCodes": [3]}],
            r"^\[0\]: Invalid enum value 'Explode' - at `\$.action`",
        ),
        ([{"exitCodes": [3]}], "missing required field `action`"),
        (
            [{"action": "FailJob", "minDelaySeconds": 5}],
            "a rule without a condition would decide about every failure",
        ),
        ([{"action": "Restart", "exitCodes": [300]}], "<= 255"),
        ([{"action": "Restart", "messagePattern": "x" * 257}], "length <= 256"),
        (
            [{"action": "Restart", "messagePattern": "(?=x)"}],
            r"^\[0\]\.messagePattern: '\(\?=x\)' is not a regular",
        ),
        (
            [{**GOOD, "minDelaySeconds": 9, "maxDelaySeconds": 3}],
            r"maxDelaySeconds: 3 is below minDelaySeconds, 9",
        ),
        (["Restart"], "Expected `object`"),
        ([{1: 2}], "1: no field of a rule"),
    ],
)
def test_what_is_no_rule_is_named_with_its_place(found: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_rules(found)


# --- the ConfigMap


class Rules:
    """A ConfigMap, and an operator that reads it."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.store = Store()
        session: Any = self.kube
        self.watch = RulesWatch(session, self.store, Events(session, "test"), "system")

    async def read(self, text: str | None, key: str = names.RULES_KEY) -> tuple[RestartRule, ...]:
        """Return the rules in effect after the ConfigMap has this text; None: there is none."""
        self.kube.objects.pop((CONFIG_MAPS, names.RULES_CONFIG_MAP), None)
        if text is not None:
            await self.kube.create(
                CONFIG_MAPS,
                "system",
                {"metadata": {"name": names.RULES_CONFIG_MAP}, "data": {key: text}},
            )
        await self.watch.first()
        return self.store.restart_rules


RULE = "- {action: FailJob, exitCodes: [7]}\n"


async def test_rules_are_read_again_when_they_change_and_none_are_left_without_the_config_map() -> (
    None
):
    rules = Rules()
    assert await rules.read(None) == ()
    assert [rule.exit_codes for rule in await rules.read(RULE)] == [[7]]
    assert len(await rules.read(RULE + RULE.replace("7", "8"))) == 2
    assert await rules.read("[]") == ()
    assert len(await rules.read(RULE)) == 1
    assert await rules.read(None) == ()
    assert not rules.store.rules_refused


@pytest.mark.guarantee("invalid-cluster-rules")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: b",
        "[" * 30_000,
        "- &a [*a]",
        "- {action: FailJob",
        "- !!python/object:os.system {}",
        "- " * 9000,
        "x" * 32_769,
        "- {action: FailJob, exitCodes: [" + "9" * 5000 + "]}",
        "- {action: FailJob, exitCodes: &c [*c]}",
        "- 2026-99-99",
        "\x00",
    ],
)
async def test_the_last_valid_rules_stay_in_effect_after_any_invalid_text(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    rules = Rules()
    before = await rules.read(RULE)
    assert await rules.read(text) == before
    assert rules.store.rules_refused
    assert "ConfigMap system/elasticjob-restart-rules, rules.yaml: " in caplog.text
    assert "the 1 rules that were read last still apply" in caplog.text
    assert len(caplog.text) < 2000
    assert await rules.read(RULE + RULE) == before * 2
    assert not rules.store.rules_refused


async def test_another_key_is_named() -> None:
    rules = Rules()
    assert await rules.read(RULE, key="rules") == ()
    assert rules.store.rules_refused


async def test_the_operator_works_without_permission_to_read_rules_but_waits_for_an_answer() -> (
    None
):
    rules = Rules()
    answers = [TryLater(500, "", "down"), Refused(403, "Forbidden", "no right")]

    async def get(*_: object) -> Json:
        raise answers.pop(0)

    rules.kube.get = get  # type: ignore[method-assign, assignment]
    await rules.watch.first()
    assert answers == []
    assert rules.store.restart_rules == ()
    assert rules.store.rules_refused
