"""LimitRanges: the default limits that a namespace gives to containers that name none."""

from __future__ import annotations

from elasticjob_api.meta import Object, ObjectMeta


class LimitRangeItem(Object, frozen=True):
    """The limits for one type of objects: `Container`, `Pod` or `PersistentVolumeClaim`."""

    type: str
    default: dict[str, int | str] = {}


class LimitRangeSpec(Object, frozen=True):
    """The part of a LimitRange's spec that is read."""

    limits: list[LimitRangeItem] = []


class LimitRange(Object, frozen=True):
    """A LimitRange; the API server has already filled in the defaults that follow from its maxima."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()

    @property
    def default_limits(self) -> frozenset[str]:
        """The resources for which a container without a limit of its own gets one."""
        return frozenset(name for item in self.spec.limits if item.type == "Container" for name in item.default)
