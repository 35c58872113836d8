"""Refuses variables that the operator would refuse, before the job is created. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json, Object
from elasticjob_api.reserved_variables import member_variable_names, reserved_variable_error
from msgspec import Meta

from elasticjob_client.errors import WrongArgument


class _Variable(Object, frozen=True):
    name: str


class _Container(Object, frozen=True):
    env: list[_Variable] = []


class _PodSpec(Object, frozen=True):
    containers: Annotated[list[_Container], Meta(min_length=1)]


class _Template(Object, frozen=True):
    spec: _PodSpec


def check_variables(job: Json) -> None:
    """Check the variables of a job's manifest. Raises `WrongArgument`.

    The API server says what is wrong with a manifest of another form.
    """
    try:
        read = msgspec.convert(job, ElasticJob)
        containers = {
            role: msgspec.convert(spec.template, _Template).spec.containers
            for role, spec in read.spec.replica_specs.items()
            if spec.managed
        }
    except msgspec.ValidationError:
        return
    of_member = member_variable_names(read.spec.framework)
    for role, (first, *_) in containers.items():
        variables = [each.name for each in first.env]
        if error := reserved_variable_error(read, variables, of_member):
            field = f"spec.replicaSpecs.{role}.template.spec.containers[0]"
            raise WrongArgument(f"{field}.{error}")
