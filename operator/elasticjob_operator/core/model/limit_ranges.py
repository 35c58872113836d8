"""LimitRanges: the default limits that a namespace gives to containers that name none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.quantity import parse_quantity


class LimitRangeItem(Object, frozen=True):
    """The limits for one type of objects: `Container`, `Pod` or `PersistentVolumeClaim`."""

    type: str
    default: dict[str, int | str] = {}


class LimitRangeSpec(Object, frozen=True):
    """The part of a LimitRange's spec that is read."""

    limits: list[LimitRangeItem] = []


class LimitRange(Object, frozen=True):
    """A LimitRange.

    The API server has already filled in the defaults that follow from its maxima.
    """

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


def default_limits(ranges: Iterable[LimitRange]) -> dict[str, int | str]:
    """Return the limits that a container without its own gets.

    The least where LimitRanges differ.
    """
    found: dict[str, int | str] = {}
    for item in (item for each in ranges for item in each.spec.limits if item.type == "Container"):
        for name, value in item.default.items():
            with suppress(ValueError):  # what a tenant has written is no reason to fail on the job
                found[name] = min(value, found.get(name, value), key=parse_quantity)
    return found
