"""An API server in memory, which the operator's code uses in place of its session.

It has resource versions, UID preconditions and merge patches like the real one, and can lose an
answer or kill the operator at any write.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.clock import Clock
from elasticjob_kube.errors import AlreadyExists, Conflict, NotFound, TryLater
from elasticjob_kube.resources import EVENTS, PODS, Resource


class Crash(BaseException):
    """The operator's process dies at this write."""


class FakeKube:
    """The part of the session the operator uses, over objects in memory.

    Attributes:
        now: the server's clock; without one a version number stands for the time of a creation.
        on_change: called for every change as a watch would report it, with the event's type,
            the resource, the name and the stored JSON.
        actor: the operator's process that sends the present request; None for all other clients.
        crash_in: the number of writes after which the operator dies.
        lose_answer_in: the number of writes after which the answer of one is lost.
        before_create: is called with each new object, which it may change, or refuse by an error.
        events: the Events that were sent.
    """

    def __init__(self, now: Callable[[], float] | None = None) -> None:
        self.objects: dict[tuple[Resource, str], Json] = {}
        self.raw: dict[tuple[Resource, str], bytes] = {}
        self.now = now
        self.clock = Clock()
        self.on_change: Callable[[str, Resource, str, bytes], None] = lambda *_: None
        self.version = 0
        self.writes = 0
        self.crash_in: int | None = None
        self.lose_answer_in: int | None = None
        self.created_names: set[tuple[str, str]] = set()
        self.actor: Any = None
        self.after_write: Callable[[], None] = lambda: None
        self.before_create: Callable[[Resource, Json], None] | None = None
        self.events: builtins.list[Json] = []

    def low_priority(self) -> FakeKube:
        return self

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        if (resource, name) not in self.objects:
            raise NotFound(404, "NotFound", f"{resource.plural} {name!r} not found")
        found: Json = msgspec.json.decode(self.raw[resource, name])
        return found

    get_cached_metadata = get

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        as_type: type[Any] = dict,
        label_selector: str = "",
        **_: Any,
    ) -> Any:
        items = [
            msgspec.Raw(raw)
            for (kind, name), raw in self.raw.items()
            if kind is resource and is_selected(self.objects[kind, name], label_selector)
        ]
        page = {"metadata": {"resourceVersion": str(self.version)}, "items": items}
        return msgspec.json.decode(msgspec.json.encode(page), type=as_type)

    async def create(self, resource: Resource, namespace: str | None, body: Any) -> Json:
        if resource == EVENTS:
            self.events.append(body)
            return {}
        made = copied(body)
        if self.before_create is not None:
            self.before_create(resource, made)
        answered = self._write()
        name = body["metadata"]["name"]
        if (resource, name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{resource.plural} {name!r} already exists")
        given = made["metadata"]  # a test may give one object the time of another one
        made["metadata"] = {
            # Not in the order of creation, as on a real server.
            "uid": f"{(self.version + 1) * 0x9E3779B1 % 2**32:08x}-0000-4000-8000-000000000000",
            "generation": 1,
            "creationTimestamp": self._time(self.version + 1),
            **given,
        }
        if resource == PODS:
            used = name, str(made["metadata"].get("ownerReferences"))
            ours = "ownerReferences" in made["metadata"]
            assert not ours or used not in self.created_names, f"name {name} used twice"
            self.created_names.add(used)
            made["status"] = {"phase": "Pending"}
        self._store(resource, made)
        answered()
        return copied(made)

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        kind: str = "merge-patch",
        subresource: str = "",
    ) -> Json:
        answered = self._write()
        found = await self.get(resource, namespace or "", name)
        before = await self.get(resource, namespace or "", name)
        if kind == "merge-patch":
            wanted = body.get("metadata", {})
            for field, error in (("uid", Conflict), ("resourceVersion", Conflict)):
                if field in wanted and wanted[field] != found["metadata"][field]:
                    raise error(409, "Conflict", f"{field} is not {wanted[field]}")
            _merge(found, {"status": body["status"]} if subresource == "status" else body)
        else:
            if (
                body.get("metadata", {}).get("uid", found["metadata"]["uid"])
                != found["metadata"]["uid"]
            ):
                raise Conflict(409, "Conflict", "another UID")
            (container,) = body["spec"]["containers"]
            found["spec"]["containers"][0]["resources"] = container["resources"]
        if found.get("spec") != before.get("spec"):
            found["metadata"]["generation"] += 1
        if found != before:
            self._store(resource, found)
        answered()
        return copied(found)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        **_: Any,
    ) -> Json:
        answered = self._write()
        found = await self.get(resource, namespace or "", name)
        if uid is not None and uid != found["metadata"]["uid"]:
            raise Conflict(409, "Conflict", "another UID")
        if resource == PODS and grace_seconds != 0:
            if "deletionTimestamp" not in found["metadata"]:
                found["metadata"]["deletionTimestamp"] = self._time(0)
                self._store(resource, found)
        else:
            self.remove(resource, name)
        answered()
        return found

    # --- what the world does
    # --------------------------------------------------------------------------------------

    def remove(self, resource: Resource, name: str) -> None:
        gone = self.objects.pop((resource, name))
        del self.raw[resource, name]
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.on_change("DELETED", resource, name, msgspec.json.encode(gone))
        self.after_write()

    def mark_deleted(self, resource: Resource, name: str) -> None:
        found = self.objects[resource, name]
        found["metadata"]["deletionTimestamp"] = self._time(0)
        self._store(resource, found)

    def set_status(self, resource: Resource, name: str, **status: Any) -> None:
        found = self.objects[resource, name]
        found["status"] = {**found.get("status", {}), **status}
        self._store(resource, found)

    def edit_metadata(self, resource: Resource, name: str, edit: Callable[[Json], None]) -> None:
        found = self.objects[resource, name]
        edit(found["metadata"])
        self._store(resource, found)

    def edit(self, resource: Resource, name: str, edit: Callable[[Json], None]) -> None:
        found = self.objects[resource, name]
        edit(found["spec"])
        found["metadata"]["generation"] += 1
        self._store(resource, found)

    def all(self, resource: Resource) -> builtins.list[Json]:
        found = sorted(name for kind, name in self.objects if kind is resource)
        return [self.objects[resource, name] for name in found]

    def pods(self, role: str = "worker") -> builtins.list[Json]:
        """Return the pods of a role, except failed pods that have a replacement."""
        retained = self.retained(role)
        return [pod for pod in self._of_role(role) if pod not in retained]

    def retained(self, role: str = "worker") -> builtins.list[Json]:
        """Return the existing failed pods of a role that have a replacement."""
        latest: dict[str, int] = {}
        for pod in self._of_role(role):
            latest[_index(pod)] = max(latest.get(_index(pod), 0), _incarnation(pod))
        return [
            pod
            for pod in self._of_role(role)
            if pod["status"]["phase"] == "Failed" and _incarnation(pod) < latest[_index(pod)]
        ]

    def _of_role(self, role: str) -> builtins.list[Json]:
        return [
            pod for pod in self.all(PODS) if pod["metadata"]["labels"].get(names.LABEL_ROLE) == role
        ]

    def _store(self, resource: Resource, item: Json) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        key = resource, item["metadata"]["name"]
        kind = "MODIFIED" if key in self.raw else "ADDED"
        self.objects[key] = item
        self.raw[key] = msgspec.json.encode(item)
        self.on_change(kind, *key, self.raw[key])
        self.after_write()

    def _time(self, number: int) -> str:
        if self.now is not None:
            return format_time(self.now())
        return f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"

    def _write(self) -> Callable[[], None]:
        """Count a write, which may kill the operator.

        Return a function that ends it, which may lose the answer.
        """
        self.writes += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in == 0:
                raise Crash  # before it reached the server
        if self.lose_answer_in is not None:
            self.lose_answer_in -= 1
        lost = self.lose_answer_in == 0

        def answered() -> None:
            if lost:
                raise TryLater(0, "TimeoutError", "no answer")

        return answered


def _index(pod: Json) -> str:
    return str(pod["metadata"]["labels"].get(names.LABEL_INDEX, ""))


def _incarnation(pod: Json) -> int:
    return int(pod["metadata"]["labels"].get(names.LABEL_INCARNATION, 0))


def is_selected(item: Json, label: str) -> bool:
    """Return whether a list or watch with this label selector includes an object.

    An empty selector includes every object.
    """
    return not label or label in item["metadata"].get("labels", {})


def copied(item: Any) -> Json:
    """Return a deep copy; the answer of a real API server shares no objects either."""
    result: Json = msgspec.json.decode(msgspec.json.encode(item))
    return result


def _merge(target: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.setdefault(key, {})
            if key != "metadata":
                _merge(inner, value)
            elif "ownerReferences" in value:
                inner["ownerReferences"] = value["ownerReferences"]
        else:
            target[key] = value
