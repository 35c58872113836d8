"""Reads the job's profile from its ConfigMap at the start, and adds this job's measurements.

Nothing waits for it. Without a readable profile the job measures everything by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time

import msgspec
from elasticjob_api import names
from elasticjob_api.times import format_time
from elasticjob_kube.errors import Conflict, KubeError, NotFound
from elasticjob_kube.resources import CONFIG_MAPS
from elasticjob_kube.session import Kube

from elasticjob_master.config import Config
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.profile import (
    ProfiledJob,
    UnreadableProfile,
    profiled,
    read_profile,
    write_profile,
)

log = logging.getLogger(__name__)

_READ_SECONDS = 0.5
"""The time between two attempts to read the profile, with which the job may begin."""
_CHECK_SECONDS = 1.0
"""The time between two checks whether the profile has to be written."""
_READING_SECONDS = 30.0
"""The time for attempts to read the profile. The operator may create the ConfigMap, and give the
right to read it, after the master has started.
"""
_RETRY_SECONDS = 60.0
_ATTEMPTS = 3


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class ProfileKeeper:
    """Reads and writes the profile of this job, if the job names one."""

    def __init__(self, kube: Kube, config: Config, controller: Controller) -> None:
        self._kube = kube
        self._config = config
        self._controller = controller
        self._scaling = controller.scaling
        self._written_size: int | None = None

    async def run(self) -> None:
        """Read the profile, then write it whenever the search has settled at another size."""
        began = time.monotonic()
        retry_at = 0.0
        is_read = False
        while True:
            if not is_read:
                is_late = time.monotonic() - began > _READING_SECONDS
                is_read = is_late or (self._profile is not None and await self._read())
            settled = self._scaling.autoscaler.memory.search.settled_size
            if (
                settled is not None
                and settled != self._written_size
                and time.monotonic() >= retry_at
            ):
                retry_at = time.monotonic() + (0.0 if await self.write() else _RETRY_SECONDS)
            await asyncio.sleep(_CHECK_SECONDS if is_read else _READ_SECONDS)

    async def _read(self) -> bool:
        """Read the needs of earlier jobs; return whether they are known."""
        try:
            found = await self._get()
        except KubeError:
            return False
        self._scaling.autoscaler.profile = self._jobs(found) if self._is_ours(found) else ()
        return True

    async def write(self) -> bool:
        """Add the job's measurements; return whether nothing remains to be written."""
        scaling = self._scaling.job_scaling
        memory = self._scaling.autoscaler.memory
        if self._profile is None or scaling is None:
            return True
        config = self._config
        latest = profiled(
            memory, scaling, job=config.job_name, uid=config.job_uid, at=format_time(time.time())
        )
        if latest is None:
            return True
        try:
            for _ in range(_ATTEMPTS):
                if await self._add(latest):
                    self._written_size = memory.search.settled_size
                    return True
        except NotFound:
            log.info(
                "ConfigMap %s was deleted: nothing is kept for later jobs",
                names.profile_config_map(self._profile),
            )
        except KubeError as error:
            log.warning("profile %s is not written: %s", self._profile, error)
        return False

    async def _add(self, latest: ProfiledJob) -> bool:
        """Write the profile with a job; return False if another client wrote at the same time."""
        found = await self._get()
        if not self._is_ours(found):
            log.warning(
                "ConfigMap %s is not written: it has no label %s", self._name, names.LABEL_PROFILE
            )
            return True
        text = write_profile(self._jobs(found), latest)
        body = {
            "metadata": {"resourceVersion": found.metadata.resource_version},
            "data": {names.PROFILE_KEY: text},
        }
        try:
            await self._kube.patch(CONFIG_MAPS, self._config.namespace, self._name, body)
        except Conflict:
            return False
        return True

    def _jobs(self, found: _ConfigMap) -> tuple[ProfiledJob, ...]:
        """Return the jobs of the profile. If it is unreadable, log a warning and return none."""
        try:
            return read_profile((found.data or {}).get(names.PROFILE_KEY, ""))
        except UnreadableProfile as error:
            log.warning("ConfigMap %s is ignored, and will be replaced: %s", self._name, error)
            return ()

    def _is_ours(self, found: _ConfigMap) -> bool:
        """Return whether the operator has created this ConfigMap."""
        return (found.metadata.labels or {}).get(names.LABEL_PROFILE) == self._profile

    @property
    def _profile(self) -> str | None:
        return self._controller.facts.profile

    @property
    def _name(self) -> str:
        return names.profile_config_map(self._profile or "")

    async def _get(self) -> _ConfigMap:
        return await self._kube.get(
            CONFIG_MAPS, self._config.namespace, self._name, as_type=_ConfigMap
        )
