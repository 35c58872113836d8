"""The dashboard of a job whose master is gone or out of reach.

The page, with what the master has last stored.
"""

from __future__ import annotations

from elasticjob_api.dashboard import Page as DashboardPage
from elasticjob_api.dashboard import page_data

from elasticjob_client.cluster import Cluster
from elasticjob_client.dashboard import Page, Source
from elasticjob_client.errors import MasterUnavailable, MasterUnreachable
from elasticjob_client.report import stored_master

_PAGE = "/"


class MasterOrStored:
    """The dashboard of a job's master; where there is none, of what is stored."""

    def __init__(self, cluster: Cluster, job: str, master: Source) -> None:
        self._cluster = cluster
        self._job = job
        self._master = master
        self._page = DashboardPage()

    async def get(self, path: str) -> Page:
        """Return an answer. Raises as the master's source, where nothing is stored."""
        try:
            return await self._master.get(path)
        except (MasterUnavailable, MasterUnreachable) as problem:
            stored = await stored_master(self._cluster, self._job, problem)
        if path == _PAGE:
            return Page(
                self._page.text.encode(),
                {"Content-Type": "text/html; charset=utf-8", **self._page.headers},
            )
        return Page(page_data(stored.answers, ended=True), {"Content-Type": "application/json"})
