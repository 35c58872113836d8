"""Numbers that an agent sends are bounded, so that a faulty agent cannot lock out others."""

from __future__ import annotations

import math

import pytest
from elasticjob_api.refusals import BadRequest
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.state import MOST_LOST_ROUNDS, RendezvousState
from elasticjob_master.server import protobuf


def rendezvous(round_: int) -> RendezvousState:
    state = RendezvousState()
    advance(state, 0.0, StateRestored((), "training", round_, ()))
    return state


@pytest.mark.guarantee("impossible-numbers-from-agents")
def test_an_agent_may_claim_only_rounds_that_a_master_can_have_given() -> None:
    assert rendezvous(7).latest_given_round == 7 + MOST_LOST_ROUNDS, "the state may be older"
    assert RendezvousState().latest_given_round == MOST_LOST_ROUNDS, "the state may be lost"
    later = rendezvous(2 * MOST_LOST_ROUNDS)
    assert later.latest_given_round > 2 * MOST_LOST_ROUNDS, (
        "a master knows the rounds that it has given"
    )


@pytest.mark.guarantee("impossible-numbers-from-agents")
@pytest.mark.parametrize("cores", [math.nan, math.inf, -math.inf, -1.0, 1e9])
def test_usage_beyond_any_node_is_bounded(cores: float) -> None:
    used = protobuf.usage(
        pb.ResourceUsage(
            cpu_cores=cores,
            memory_bytes=2**64 - 1,
            gpu_percent=2**32 - 1,
            gpu_memory_bytes=2**63,
            node_cores=2**32 - 1,
        )
    )
    assert used.cpu_cores == 0.0
    assert used.memory_bytes == used.gpu_memory_bytes == protobuf.MOST_BYTES
    assert used.gpu_percent == protobuf.MOST_GPU_PERCENT
    assert used.node_cores == protobuf.MOST_CORES
    plain = pb.ResourceUsage(
        cpu_cores=3.5, memory_bytes=2**33, gpu_percent=90, gpu_memory_bytes=2**34
    )
    assert protobuf.usage(plain).memory_bytes == 2**33


@pytest.mark.guarantee("impossible-numbers-from-agents")
@pytest.mark.parametrize(
    ("field", "value"),
    [("incarnation", 2**32 - 1), ("index", 100_001), ("slots", 257), ("slots", 0)],
)
def test_a_registration_with_an_impossible_number_is_refused(field: str, value: int) -> None:
    request = pb.RegisterRequest(
        pod_name="p", pod_uid="u", role="worker", address="10.0.0.1", slots=1
    )
    assert protobuf.identity(request, ()).incarnation == 0
    setattr(request, field, value)
    with pytest.raises(BadRequest, match=f"{field} is {value}; it must be"):
        protobuf.identity(request, ())
