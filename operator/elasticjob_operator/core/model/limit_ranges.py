"""Reads LimitRanges: the default limits of a namespace, and the bounds of a container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_CEILING

from elasticjob_api.meta import Json, Object, ObjectMeta
from elasticjob_api.quantity import format_memory, parse_quantity


class LimitRangeItem(Object, frozen=True):
    """The limits for one type of objects: `Container`, `Pod` or `PersistentVolumeClaim`."""

    type: str
    default: dict[str, int | str] = {}
    min: dict[str, int | str] = {}
    max: dict[str, int | str] = {}
    max_limit_request_ratio: dict[str, int | str] = {}


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


@dataclass(frozen=True)
class Bounds:
    """The tightest bounds of a namespace for one container, by resource.

    Attributes:
        least: the lowest request.
        most: the highest limit.
        ratio: the highest limit divided by the request.
    """

    least: Mapping[str, int | str] = field(default_factory=dict)
    most: Mapping[str, int | str] = field(default_factory=dict)
    ratio: Mapping[str, int | str] = field(default_factory=dict)

    def fit(self, resources: Json) -> Json:
        """Return a container's resources within the bounds.

        Limits are lowered and requests raised; a resource that is not named stays unnamed.
        """
        limits = dict(resources.get("limits") or {})
        requests = dict(resources.get("requests") or {})
        for name in limits:
            limits[name] = min(limits[name], self.most.get(name, limits[name]), key=parse_quantity)
        for name, request in requests.items():
            needed = [request, self.least.get(name, request)]
            if name in limits and name in self.ratio:
                least = parse_quantity(limits[name]) / parse_quantity(self.ratio[name])
                thousandths = (least * 1000).to_integral_value(ROUND_CEILING)
                needed.append(f"{thousandths}m" if name == "cpu" else format_memory(least))
            requests[name] = max(needed, key=parse_quantity)
            if name in limits:
                limits[name] = max(limits[name], requests[name], key=parse_quantity)
        changed = {"limits": limits, "requests": requests}
        return {**resources, **{kind: amounts for kind, amounts in changed.items() if amounts}}


def bounds(ranges: Iterable[LimitRange]) -> Bounds:
    """Return the bounds of a container that is alone in its pod."""
    least: dict[str, int | str] = {}
    most: dict[str, int | str] = {}
    ratio: dict[str, int | str] = {}
    for item in (item for each in ranges for item in each.spec.limits):
        if item.type not in ("Container", "Pod"):
            continue
        for found, values, tightest in (
            (least, item.min, max),
            (most, item.max, min),
            (ratio, item.max_limit_request_ratio, min),
        ):
            for name, value in values.items():
                with suppress(ValueError):  # an invalid quantity of a user must not fail the job
                    found[name] = tightest(value, found.get(name, value), key=parse_quantity)
    return Bounds(least, most, ratio)
