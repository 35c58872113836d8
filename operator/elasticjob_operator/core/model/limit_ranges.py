"""LimitRanges: where a namespace has default limits, a container that asks for more than one must name its own."""

from __future__ import annotations

from elasticjob_api.meta import Object, ObjectMeta


class LimitRangeItem(Object, frozen=True):
    """What holds for one type of objects: `Container`, `Pod` or `PersistentVolumeClaim`."""

    type: str
    default: dict[str, int | str] = {}


class LimitRangeSpec(Object, frozen=True):
    """The part of a LimitRange's spec that is read."""

    limits: list[LimitRangeItem] = []


class LimitRange(Object, frozen=True):
    """A LimitRange; the API server has filled in the defaults that follow from its maxima."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()

    @property
    def default_limits(self) -> frozenset[str]:
        """The resources that a container without a limit of its own is given one of."""
        return frozenset(name for item in self.spec.limits if item.type == "Container" for name in item.default)
