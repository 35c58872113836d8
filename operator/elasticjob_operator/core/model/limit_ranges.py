"""Reads LimitRanges: the default limits of a namespace, and the bounds of a container."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import ROUND_CEILING

from elasticjob_api.meta import Json, Object, ObjectMeta
from elasticjob_api.quantity import format_memory, parse_quantity

Amounts = Mapping[str, int | str]
"""Quantities by resource."""


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


def default_limits(ranges: Iterable[LimitRange]) -> Amounts:
    """Return the limits of a container without limits; the lowest if LimitRanges differ."""
    return _tightest(ranges, ("Container",), lambda item: item.default, min)


def _tightest(
    ranges: Iterable[LimitRange],
    types: Collection[str],
    amounts: Callable[[LimitRangeItem], Amounts],
    choose: Callable[..., int | str],
) -> Amounts:
    """Return by resource the amount that `choose` takes, `min` or `max`."""
    found: dict[str, int | str] = {}
    for item in (item for each in ranges for item in each.spec.limits if item.type in types):
        for name, value in amounts(item).items():
            with suppress(ValueError):  # an invalid quantity of a user must not fail the job
                found[name] = choose(value, found.get(name, value), key=parse_quantity)
    return found


@dataclass(frozen=True)
class Bounds:
    """The tightest bounds of a namespace for one container, by resource.

    Attributes:
        least: the lowest request.
        most: the highest limit.
        ratio: the highest limit divided by the request.
    """

    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    ratio: Amounts = field(default_factory=dict)

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


def bounds(ranges: Collection[LimitRange]) -> Bounds:
    """Return the bounds of a container that is alone in its pod."""
    types = ("Container", "Pod")
    return Bounds(
        _tightest(ranges, types, lambda item: item.min, max),
        _tightest(ranges, types, lambda item: item.max, min),
        _tightest(ranges, types, lambda item: item.max_limit_request_ratio, min),
    )
