"""What the master takes for healthy without an ElasticJob that says so, and how it refuses what it cannot take."""

from __future__ import annotations

import pytest
from elasticjob_api import names
from elasticjob_api.health import Health
from elasticjob_master.config import ConfigError, load

ALONE = ("--standalone", "--insecure")


def test_without_kubernetes_the_command_line_says_what_is_healthy() -> None:
    assert load(ALONE, {}).health == Health()
    found = load((*ALONE, "--lost-seconds=7", "--stall-seconds=8", "--on-stall=Restart"), {}).health
    assert found == Health(lost_seconds=7, stall_seconds=8, on_stall="Restart")


@pytest.mark.parametrize(
    ("option", "says"), [("--lost-seconds=4", ">= 5 - at `$.lostSeconds`"), ("--stall-seconds=0", ">= 1")]
)
def test_a_value_beyond_its_bound_is_refused_with_field_and_bound(option: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load((*ALONE, option), {})
    assert says in str(refused.value)


def test_in_a_pod_it_is_the_elasticjob_that_says_so() -> None:
    environment = dict.fromkeys((names.ENV_JOB_NAME, names.ENV_JOB_UID, names.ENV_NAMESPACE, names.ENV_POD_NAME), "x")
    environment |= dict.fromkeys((names.ENV_TOKEN, names.ENV_TLS_CERT, names.ENV_TLS_KEY, names.ENV_CA), "x")
    environment[names.ENV_FRAMEWORK] = "jax"
    with pytest.raises(ConfigError, match=r"onStall: in a pod this is set by spec\.health"):
        load(("--on-stall=Restart",), environment)
