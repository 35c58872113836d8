"""Reads the cluster's restart rules from a ConfigMap in the operator's namespace.

The ConfigMap is read regularly, not watched, so the operator needs no further right. If it cannot
be read, the last rules that were read apply, and the log, an event and a metric show the reason.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from elasticjob_api import names, yaml_documents
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from elasticjob_operator.core.members.cluster_rules import Rules, read_rules
from elasticjob_operator.core.model.actions import EmitEvent
from elasticjob_operator.events import Events, Subject
from elasticjob_operator.store import Store

log = logging.getLogger(__name__)
CHECK_SECONDS = 20.0
_MAX_CHARACTERS = 32_768


@dataclass
class RulesWatch:
    """Keeps the store's restart rules up to date."""

    kube: Kube
    store: Store
    events: Events
    namespace: str
    _version: str | None = None
    _error: str = ""

    async def first(self) -> None:
        """Return when the rules are known: no decision may miss one of them."""
        while True:
            if await self._read():
                return
            await asyncio.sleep(1)

    async def run(self) -> None:
        """Read the rules regularly; never returns."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._read()

    async def _read(self) -> bool:
        """Read the rules if they have changed; return whether the API server has answered."""
        try:
            found = await self.kube.get(CONFIG_MAPS, self.namespace, names.RULES_CONFIG_MAP)
        except NotFound:
            self._version = None
            self._apply((), "")
            return True
        except Refused as error:
            self._apply(self.store.restart_rules, f"they cannot be read: {error.message}")
            return True
        except KubeError:
            return False
        metadata = found["metadata"]
        if metadata["resourceVersion"] == self._version:
            return True
        self._version = metadata["resourceVersion"]
        try:
            rules = read_rules(_parsed(found.get("data") or {}))
            why = ""
        except ValueError as error:
            rules = self.store.restart_rules
            why = str(error)
        if why and why != self._error:
            subject = Subject(CONFIG_MAPS, self.namespace, names.RULES_CONFIG_MAP, metadata["uid"])
            self.events.emit_about(
                subject, EmitEvent("RulesRefused", self._message(why), warning=True)
            )
        self._apply(rules, why)
        return True

    def _apply(self, rules: Rules, why: str) -> None:
        if why and why != self._error:
            log.warning("%s", self._message(why))
        elif not why and (rules != self.store.restart_rules or self._error):
            log.info(
                "ConfigMap %s/%s: %d restart rules",
                self.namespace,
                names.RULES_CONFIG_MAP,
                len(rules),
            )
        self._error = why
        self.store.restart_rules = rules
        self.store.rules_refused = bool(why)

    def _message(self, why: str) -> str:
        """Return the reason, and the rules that apply meanwhile."""
        where = f"ConfigMap {self.namespace}/{names.RULES_CONFIG_MAP}, {names.RULES_KEY}"
        number = len(self.store.restart_rules)
        return f"{where}: {why}; the {number} rules that were read last still apply"


def _parsed(data: dict[str, str]) -> Any:
    """Return the rules' text, parsed as YAML.

    Raises:
        ValueError: it is missing, too long, or not YAML.
    """
    if names.RULES_KEY not in data:
        raise ValueError(f"data has no key {names.RULES_KEY}")
    text = data[names.RULES_KEY]
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters are more than {_MAX_CHARACTERS}")
    try:
        found = yaml_documents.read(text)
    except yaml_documents.Unreadable as error:
        raise ValueError(f"it is not YAML: {str(error)[:300]}") from error
    if len(found) > 1:
        raise ValueError(f"{len(found)} documents; the rules are one")
    return found[0] if found else None
