"""Reads the restart rules of the whole cluster from a ConfigMap beside the operator, and again when it has changed.

It is asked for, not watched, like other ConfigMaps: so the operator needs no further right. What
cannot be read harms no job: the rules that were read last stay, and log, event and metric say what
is wrong.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import yaml
from elasticjob_api import names
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
        """Return when the rules are known: nothing may be decided by fewer than there are."""
        while True:
            if await self._read():
                return
            await asyncio.sleep(1)

    async def run(self) -> None:
        """Read the rules whenever they may have changed; never returns."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self._read()

    async def _read(self) -> bool:
        """Read the rules if the ConfigMap has changed.

        Return whether the API server has answered.
        """
        try:
            found = await self.kube.get(CONFIG_MAPS, self.namespace, names.RULES_CONFIG_MAP)
        except NotFound:
            self._version = None
            self._take((), "")
            return True
        except Refused as error:
            self._take(self.store.restart_rules, f"they cannot be read: {error.message}")
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
                subject, EmitEvent("RulesRefused", self._said(why), warning=True)
            )
        self._take(rules, why)
        return True

    def _take(self, rules: Rules, why: str) -> None:
        if why and why != self._error:
            log.warning("%s", self._said(why))
        elif not why and (rules != self.store.restart_rules or self._error):
            log.info(
                "ConfigMap %s/%s: %d restart rules",
                self.namespace,
                names.RULES_CONFIG_MAP,
                len(rules),
            )
        self._error, self.store.restart_rules, self.store.rules_refused = why, rules, bool(why)

    def _said(self, why: str) -> str:
        """Return what is wrong, and what holds meanwhile."""
        where = f"ConfigMap {self.namespace}/{names.RULES_CONFIG_MAP}, {names.RULES_KEY}"
        return f"{where}: {why}; the {len(self.store.restart_rules)} rules that were read last stay"


def _parsed(data: dict[str, str]) -> Any:
    """Return what the text is as YAML.

    Raises:
        ValueError: it is missing, too long, or no YAML.
    """
    if names.RULES_KEY not in data:
        raise ValueError(f"data has no key {names.RULES_KEY}")
    text = data[names.RULES_KEY]
    if len(text) > _MAX_CHARACTERS:
        raise ValueError(f"{len(text)} characters are more than {_MAX_CHARACTERS}")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:300]}") from error
