"""The agent's configuration from its environment."""

from __future__ import annotations

import re

import pytest
from elasticjob_agent import config
from elasticjob_api import names

ENVIRONMENT = {
    names.ENV_POD_NAME: "job-worker-3-2",
    names.ENV_POD_UID: "uid",
    names.ENV_POD_IP: "10.0.0.3",
    names.ENV_NAMESPACE: "team",
    names.ENV_ROLE: "worker",
    names.ENV_INDEX: "3",
    names.ENV_INCARNATION: "2",
    names.ENV_MASTER_SERVICE: "job-master",
}


def test_the_master_is_found_by_service_variable_else_by_dns() -> None:
    assert config.load(ENVIRONMENT).master_host == "job-master.team.svc"
    assert (
        config.load({**ENVIRONMENT, "JOB_MASTER_SERVICE_HOST": "127.0.0.9"}).master_host
        == "127.0.0.9"
    )


def test_unset_numbers_have_defaults() -> None:
    loaded = config.load(ENVIRONMENT)
    assert (loaded.slots, loaded.process_restart_limit, loaded.drain_seconds) == (1, 0, 30)


@pytest.mark.parametrize(
    "name", [n for n in ENVIRONMENT if n not in (names.ENV_POD_IP, names.ENV_INCARNATION)]
)
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(config.ConfigError, match=name):
        config.load({**ENVIRONMENT, name: ""})


@pytest.mark.parametrize(
    ("name", "value"), [(names.ENV_INDEX, "x"), (names.ENV_SLOTS, "0"), (names.ENV_INDEX, "²")]
)
def test_a_bad_number_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(
        config.ConfigError, match=re.escape(f"{name}={value!r} must be a whole number")
    ):
        config.load({**ENVIRONMENT, name: value})


@pytest.mark.guarantee("only-the-job-reaches-its-master")
@pytest.mark.parametrize(
    ("given_", "missing"), [(names.ENV_TOKEN, names.ENV_CA), (names.ENV_CA, names.ENV_TOKEN)]
)
def test_a_token_is_never_sent_without_tls(given_: str, missing: str) -> None:
    with pytest.raises(config.ConfigError, match=missing):
        config.load({**ENVIRONMENT, given_: "x"})
