"""Replaces references to pods of other operators: their labels and host names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.yaml_documents import Place

from elasticjob_cli.convert import host_names, labels, selectors
from elasticjob_cli.convert.labels import Lost
from elasticjob_cli.convert.peers import Jobs, PeerJob
from elasticjob_cli.convert.report import Report, name_of

_KEYS = ("matchLabelKeys", "mismatchLabelKeys")
_SELECT_PODS = ("PodDisruptionBudget", "PodMonitor")
"""Kinds with a `selector` of pods; that of a Service only compares values."""
_NOT_OF_PODS = ("nodeAffinity", "namespaceSelector")
_TEXTS = ("command", "args")


def replaced(document: Json, own: PeerJob | None, jobs: Jobs, report: Report) -> Json:
    """Return an object with our labels and host names for those of the pods of a file's jobs.

    Args:
        document: a converted job, or another object of the file.
        own: the job that became the object; None if it is another object.
        jobs: the jobs of the file.
        report: gets the notes about it.
    """
    references = _References(own, jobs, report)
    changed: Json = references.of(document, ())
    spec = changed.get("spec")
    kind = changed.get("kind")
    if kind == "ConfigMap" and isinstance(data := changed.get("data"), dict):
        return {**changed, "data": references.texts(data, ("data",))}
    if not isinstance(spec, dict) or not isinstance(selector := spec.get("selector"), dict):
        return changed
    at = ("spec", "selector")
    if kind == "Service":
        if (name := name_of(changed)) in [job.ours for job in jobs.values()]:
            message = f"the operator makes the Service {name} for host names: rename or remove this"
            report.lost("metadata.name", message, ("metadata", "name"))
        labelled = references.selector({"matchLabels": selector}, at, equal=True)
        return {**changed, "spec": {**spec, "selector": labelled["matchLabels"]}}
    if kind in _SELECT_PODS:
        return {**changed, "spec": {**spec, "selector": references.selector(selector, at)}}
    return changed


@dataclass(frozen=True)
class _References:
    own: PeerJob | None
    jobs: Jobs
    report: Report

    def of(self, value: Any, place: Place) -> Any:
        """Return a value with all references in it replaced."""
        if isinstance(value, list):
            return [self.of(inner, (*place, number)) for number, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        changed = {key: self._field(key, inner, (*place, key)) for key, inner in value.items()}
        keys = [key for name in _KEYS for key in _texts(changed.get(name))]
        if isinstance(inner := changed.get("labelSelector"), dict):
            changed["labelSelector"] = self.selector(inner, (*place, "labelSelector"), keys=keys)
        if isinstance(inner := changed.get("podSelector"), dict):
            # A NetworkPolicy of a job's pods is also one of its own master, which they reach.
            role = [names.LABEL_ROLE]
            changed["podSelector"] = self.selector(inner, (*place, "podSelector"), keys=role)
        return changed

    def selector(
        self, found: Json, at: Place, *, keys: list[str] | None = None, equal: bool = False
    ) -> Json:
        """Return a selector of pods with our labels."""
        try:
            ours, notes = selectors.replaced(
                found, self.jobs, self.own, compared=keys or (), equal=equal
            )
        except Lost as lost:
            self._lost(lost, at)
            return found
        if ours != found:
            keys_here = ", ".join(selectors.keys(ours))
            message = "; ".join([f"pods are selected by their labels here, {keys_here}", *notes])
            self.report.differs(self._path(at), message, at)
        return ours

    def texts(self, values: dict[Any, Any], place: Place) -> dict[Any, Any]:
        """Return a map of texts with our host names."""
        changes: dict[str, str] = {}
        changed = {key: self._hosts(value, changes) for key, value in values.items()}
        self._note_hosts(changes, place)
        return changed

    def _field(self, key: str, value: Any, at: Place) -> Any:
        if key in _NOT_OF_PODS:
            return value
        if key in _KEYS and isinstance(value, list):
            return self._keys(_texts(value), at)
        if key == "fieldPath" and isinstance(value, str):
            return self._field_path(value, at)
        if key in _TEXTS and isinstance(value, list):
            return list(self.texts(dict(enumerate(value)), at).values())
        if key == "env" and isinstance(value, list):
            values = [each.get("value") if isinstance(each, dict) else None for each in value]
            hosts = self.texts(dict(enumerate(values)), at)
            value = [
                {**each, "value": hosts[number]} if isinstance(hosts[number], str) else each
                for number, each in enumerate(value)
            ]
        return self.of(value, at)

    def _keys(self, keys: list[str], at: Place) -> list[str]:
        try:
            ours = list(dict.fromkeys(labels.renamed(key, self.own) for key in keys))
        except Lost as lost:
            self._lost(lost, at)
            return keys
        if ours != keys:
            self.report.differs(
                self._path(at), f"the labels of pods here are {', '.join(ours)}", at
            )
        return ours

    def _field_path(self, path: str, at: Place) -> str:
        try:
            ours, differs = labels.field_path(path, self.own)
        except Lost as lost:
            self._lost(lost, at)
            return path
        if ours != path:
            self.report.differs(self._path(at), f"{path} is {ours} here{differs}", at)
        return ours

    def _hosts(self, value: Any, changes: dict[str, str]) -> Any:
        if not isinstance(value, str):
            return value
        return host_names.replaced(value, self.jobs.values(), changes)

    def _note_hosts(self, changes: dict[str, str], at: Place) -> None:
        if changes:
            hosts = ", ".join(f"{theirs} is {ours}" for theirs, ours in changes.items())
            self.report.differs(self._path(at), f"host names of members: {hosts} here", at)

    def _lost(self, lost: Lost, at: Place) -> None:
        self.report.lost(self._path(at), f"{lost}; it is left as it is, and finds nothing", at)

    def _path(self, at: Place) -> str:
        """Return the path in the document: of a converted job only that of the group of pods."""
        if self.own is not None and at[:2] == ("spec", "replicaSpecs"):
            return self.own.path(str(at[2]))
        return ".".join(map(str, at))


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
