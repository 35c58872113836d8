"""The roles of each framework, and the environment variables that it reads. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from elasticjob_api.frameworks.horovod import HOROVOD, HOROVOD_WITHOUT_LAUNCHER
from elasticjob_api.frameworks.jax import JAX
from elasticjob_api.frameworks.mxnet import MXNET
from elasticjob_api.frameworks.peer import Environment, Framework, Peer, stop_stage
from elasticjob_api.frameworks.pytorch import PYTORCH
from elasticjob_api.frameworks.tensorflow import TENSORFLOW, TENSORFLOW_WITHOUT_CHIEF

__all__ = ["FRAMEWORKS", "Environment", "Framework", "Peer", "framework_of", "stop_stage"]


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


def framework_of(name: str, roles: Collection[str]) -> Framework:
    """Return the framework of a job with these roles; two frameworks have a variant."""
    framework = FRAMEWORKS[name]
    if framework is HOROVOD and "launcher" not in roles:
        return HOROVOD_WITHOUT_LAUNCHER
    if framework is TENSORFLOW and "chief" not in roles:
        return TENSORFLOW_WITHOUT_CHIEF
    return framework
