"""The roles of each framework, and the environment variables it reads. Pure: shared by operator, master and schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from elasticjob_api.frameworks.horovod import HOROVOD
from elasticjob_api.frameworks.jax import JAX
from elasticjob_api.frameworks.mxnet import MXNET
from elasticjob_api.frameworks.peer import Environment, Framework, Peer, stop_stage
from elasticjob_api.frameworks.pytorch import PYTORCH
from elasticjob_api.frameworks.tensorflow import TENSORFLOW

__all__ = ["FRAMEWORKS", "Environment", "Framework", "Peer", "stop_stage"]


def _no_environment(_world: Sequence[Peer]) -> Environment:
    return lambda _rank: {}


FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {
        "horovod": HOROVOD,
        "pytorch": PYTORCH,
        "tensorflow": TENSORFLOW,
        "mxnet": MXNET,
        "jax": JAX,
        "custom": Framework(roles=(), environment=_no_environment),
    }
)
