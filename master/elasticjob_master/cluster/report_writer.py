"""Writes the master's last answers to a ConfigMap, for queries after the end of the master.

Nothing waits for it, and the training continues if it fails. A master that is killed leaves answers
of the last minute.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable

from elasticjob_api import names
from elasticjob_api.answers import pack
from elasticjob_api.v1.job_pb2 import StoredAnswers
from elasticjob_kube.errors import KubeError, NotFound, Refused
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)

REPORT_SECONDS = 60.0
"""The time between two writes. For 1,000 jobs the API server gets 17 of them a second."""
_FIRST_SECONDS = 5.0
_CHECK_SECONDS = 0.5


class ReportWriter:
    """Writes changed answers soon after the start, at the end, and from time to time between."""

    def __init__(
        self,
        kube: Kube,
        config: Config,
        controller: Controller,
        answers: Callable[[], StoredAnswers],
    ) -> None:
        self._kube = kube
        self._config = config
        self._controller = controller
        self._answers = answers
        self._written: object = None
        self._refused = False

    async def run(self) -> None:
        """Write while the master runs."""
        due = self._controller.now() + _FIRST_SECONDS
        over = self._is_over()
        while True:
            now = self._controller.now()
            was_over = over
            over = self._is_over()
            if (now >= due or over != was_over) and self._changes() != self._written:
                due = now + REPORT_SECONDS
                await self.write()
            await asyncio.sleep(_CHECK_SECONDS)

    async def write(self) -> None:
        """Write the answers."""
        changes = self._changes()
        name = names.query_config_map(self._config.job_name)
        body = {"binaryData": {names.REPORT_KEY: base64.b64encode(pack(self._answers())).decode()}}
        try:
            await self._kube.patch(CONFIG_MAPS, self._config.namespace, name, body)
        except (NotFound, Refused) as error:
            if not self._refused:
                log.warning(
                    "no answers are stored for the time after the end (an earlier operator?): %s",
                    error,
                )
            self._refused = True
        except KubeError as error:
            log.warning("the answers are not stored for now: %s", error)
        else:
            self._written = changes
            self._refused = False

    def _is_over(self) -> tuple[bool, str | None]:
        """Return values that change at the end of the training, after which the master may end."""
        controller = self._controller
        return controller.phase == "finishing", controller.facts.status.phase

    def _changes(self) -> object:
        """Return values that change with everything that is worth a write."""
        controller = self._controller
        return (
            controller.history.number,
            controller.progress.reported_at,
            controller.phase,
            controller.facts.status,
            controller.master_starts,
        )
