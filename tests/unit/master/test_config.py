"""The master's command line, and the errors for invalid arguments."""

from __future__ import annotations

import asyncio
import socket

import pytest
from elasticjob_api import names
from elasticjob_api.health import Health
from elasticjob_master.config import ConfigError, load
from elasticjob_master.main import serve
from elasticjob_master.server.grpc_server import CannotListen

ALONE = ("--standalone", "--insecure")


def test_without_kubernetes_the_command_line_says_what_is_healthy() -> None:
    assert load(ALONE, {}).health == Health()
    found = load((*ALONE, "--lost-seconds=7", "--stall-seconds=8", "--on-stall=Restart"), {}).health
    assert found == Health(lost_seconds=7, stall_seconds=8, on_stall="Restart")


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--lost-seconds=4", "--lost-seconds is 4: Expected `int` >= 5 - at `$.lostSeconds`"),
        ("--stall-seconds=0", "--stall-seconds is 0: Expected `int` >= 1"),
        ("--grpc-port=70000", "--grpc-port is 70000; it must be 0 (any free one) to 65535"),
        ("--http-port=-1", "--http-port is -1; it must be 0"),
        ("--state-file=/", "--state-file is /; it must be a file"),
        (
            "--state-file=/nowhere/state",
            "--state-file is /nowhere/state; it must be a file, existing or not, in an existing",
        ),
        ("--max=0", "--min 1, --workers 1, --max 0: not 1 <= min <= workers <= max"),
    ],
)
def test_a_value_beyond_its_bound_is_refused_with_option_and_bound(option: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load((*ALONE, option), {})
    assert says in str(refused.value)


def test_the_operators_choice_of_the_log_format_is_the_default() -> None:
    in_json = {names.ENV_LOG_FORMAT: "json"}
    assert load(ALONE, {}).log_format == "text"
    assert load(ALONE, in_json).log_format == "json"
    assert load((*ALONE, "--log-format=text"), in_json).log_format == "text"
    with pytest.raises(ConfigError, match=r"ELASTICJOB_LOG_FORMAT is 'xml'; it must be one of"):
        load(ALONE, {names.ENV_LOG_FORMAT: "xml"})


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        (names.ENV_PRICES, "cpu=-1", "ELASTICJOB_PRICES: the price of cpu is '-1'; it must be a"),
        (names.ENV_CURRENCY, "x" * 9, "ELASTICJOB_CURRENCY: 'xxxxxxxxx' is not a currency"),
    ],
)
def test_a_price_that_is_none_is_refused(variable: str, value: str, says: str) -> None:
    found = load(ALONE, {names.ENV_PRICES: "cpu=0.5,memory=0", names.ENV_CURRENCY: "EUR"})
    assert (found.prices, found.currency) == ({"cpu": 0.5, "memory": 0.0}, "EUR")
    with pytest.raises(ConfigError) as refused:
        load(ALONE, {variable: value})
    assert str(refused.value).startswith(says)


def test_a_master_started_by_hand_names_the_missing_options() -> None:
    with pytest.raises(
        ConfigError, match=r"ELASTICJOB_FRAMEWORK is not set.*try --standalone --insecure"
    ):
        load((), {})


def test_in_a_pod_the_elasticjob_says_what_is_healthy() -> None:
    environment = dict.fromkeys(
        (names.ENV_JOB_NAME, names.ENV_JOB_UID, names.ENV_NAMESPACE, names.ENV_POD_NAME), "x"
    )
    environment |= dict.fromkeys((names.ENV_TOKEN, names.ENV_TLS_CERT, names.ENV_TLS_KEY), "x")
    environment[names.ENV_FRAMEWORK] = "jax"
    with pytest.raises(ConfigError, match=r"--on-stall: in a pod this is set by spec\.health"):
        load(("--on-stall=Restart",), environment)


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("10.244.0.7", ("127.0.0.1",)),
        ("fd00::7", ("127.0.0.1",)),
        ("127.3.4.5", ()),
        ("0.0.0.0", ()),
        ("::1", ()),
        ("localhost", ()),
    ],
)
def test_a_master_on_another_address_also_listens_for_port_forwarding(
    address: str, more: tuple[str, ...]
) -> None:
    assert load((*ALONE, f"--address={address}"), {}).more_addresses == more


@pytest.mark.parametrize("option", ["--grpc-port", "--http-port"])
async def test_a_port_that_is_in_use_is_named(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = load((*ALONE, "--grpc-port=0", "--http-port=0", f"{option}={port}"), {})
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}: "):
            await serve(config, asyncio.Event())


def test_a_masters_size_comes_from_its_input_only_without_kubernetes() -> None:
    assert load([*ALONE, "--sizes-from-stdin"], {}).sizes_from_stdin
    with pytest.raises(ConfigError, match="--sizes-from-stdin is only possible with --standalone"):
        load(["--sizes-from-stdin"], {})
