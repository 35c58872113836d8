"""Reads LimitRanges: the default limits of a namespace for containers without limits."""

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
    """A LimitRange; the API server has derived defaults from its maxima."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


def default_limits(ranges: Iterable[LimitRange]) -> dict[str, int | str]:
    """Return the limits of a container without limits; the lowest if LimitRanges differ."""
    found: dict[str, int | str] = {}
    for item in (item for each in ranges for item in each.spec.limits if item.type == "Container"):
        for name, value in item.default.items():
            with suppress(ValueError):  # an invalid quantity of a user must not fail the job
                found[name] = min(value, found.get(name, value), key=parse_quantity)
    return found
