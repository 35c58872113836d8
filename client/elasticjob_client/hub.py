"""Serves the page of all jobs in the cluster, to users who each show a token of their own.

The hub has no rights, so it can lend none: each request to the API server has the token of the user
whose browser has asked. The API server decides what the user sees and changes; the hub reviews no
token and no access itself. Tokens are kept in memory only, and are sent over TLS only.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from aiohttp import web
from elasticjob_api.addresses import host_port
from elasticjob_kube import open_files
from elasticjob_kube.access import Access, access_without_token
from elasticjob_kube.connection import open_http
from elasticjob_kube.errors import NoAccess
from elasticjob_kube.guarded_server import GuardedServer, healthy
from elasticjob_kube.session import Kube
from elasticjob_kube.transport import Http

from elasticjob_client.cluster import Cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.jobs_page import HEADERS, JobsPage, routes, token_of
from elasticjob_client.page_source import LargeAnswers
from elasticjob_client.sign_in import SignIns
from elasticjob_client.visible_jobs import LISTS_AT_ONCE, Unauthorized

log = logging.getLogger(__name__)
_MOST_USERS = 64
_MOST_TOKEN = 16_384
_LONGEST_SECONDS = 600.0
"""After this time a user's pages connect again, so that no right outlives its withdrawal longer."""
_CONNECTIONS = 8
_CERTIFICATE_SECONDS = 60.0


class Users:
    """The pages of the users whose tokens the API server has accepted.

    Args:
        http: the connections to the API server.
        access: its address and authority; the credentials are the users'.
        namespaces: the namespaces to try for users who may not list them.
    """

    def __init__(self, http: Http, access: Access, namespaces: Sequence[str]) -> None:
        self._http = http
        self._access = access
        self._namespaces = namespaces
        self._sign_ins = SignIns()
        self._large = LargeAnswers()
        self._lists = asyncio.Semaphore(LISTS_AT_ONCE)
        self._pages: dict[bytes, tuple[JobsPage, float]] = {}
        """By the token's hash, with the time of the end; the one that was used last at the end."""

    async def page_of(self, request: web.Request) -> JobsPage | None:
        """Return the page of the request's user; None if the API server does not know the token.

        Raises:
            HTTPTooManyRequests: too many others are signing in.
        """
        token = token_of(request)
        if not token.isascii() or not token.isprintable() or not 0 < len(token) <= _MOST_TOKEN:
            return None
        key = hashlib.sha256(token.encode()).digest()
        if self._sign_ins.is_refused(key):
            return None
        now = asyncio.get_running_loop().time()
        page, end = self._pages.pop(key, (None, 0.0))
        if page is not None and (page.reader.is_refused or now >= end):
            await page.aclose()
            page = None
        if page is None:
            end = now + _LONGEST_SECONDS
            async with self._sign_ins.turn(request.remote or ""):
                page = await self._sign_in(token)
            if page is None:
                self._sign_ins.refuse(key)
                return None
        if other := self._pages.pop(key, None):  # another request of the user was faster
            await other[0].aclose()
        self._pages[key] = (page, end)
        if len(self._pages) > _MOST_USERS:
            await self._pages.pop(next(iter(self._pages)))[0].aclose()
        return page

    async def _sign_in(self, token: str) -> JobsPage | None:
        """Return the page of a user; None if the API server does not know the token."""
        page = JobsPage(
            self._cluster(token),
            None,
            elsewhere=self._namespaces,
            local=False,
            large=self._large,
            lists=self._lists,
        )
        try:
            await page.reader.read()
        except Unauthorized:
            await page.aclose()
            return None
        except ClientError as error:
            log.info("a user's jobs cannot be listed: %s", error)  # the page tells the user
        return page

    async def end_old(self) -> None:
        """End the pages whose time is over, also those of browsers that only listen."""
        now = asyncio.get_running_loop().time()
        for key, (page, end) in list(self._pages.items()):
            if now >= end:
                del self._pages[key]
                await page.aclose()

    def end_streams(self) -> None:
        """End all streams at once."""
        for page, _ in self._pages.values():
            page.end_streams()

    async def close(self) -> None:
        """End all pages."""
        for page, _ in self._pages.values():
            await page.aclose()

    def _cluster(self, token: str) -> Cluster:
        async def authorization() -> str:
            return f"Bearer {token}"

        access = replace(self._access, authorization=authorization)
        kube = Kube(self._http, access, user_agent="elasticjob-hub", connections=_CONNECTIONS)
        return Cluster(kube, next(iter(self._namespaces), "default"))


@asynccontextmanager
async def serve_hub(
    access: Access,
    certificate: Path,
    *,
    namespaces: Sequence[str] = (),
    host: str | None = None,
    port: int = 0,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL.

    Args:
        access: address and authority of the API server, without credentials.
        certificate: a folder with `tls.crt` and `tls.key`, which are read again when they change.
        namespaces: the namespaces to try for users who may not list them.
        host: the address to listen on; None for all addresses of the pod.
        port: 0: a free port.

    Raises:
        OSError: the certificate cannot be read, or the port is in use.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")

    async def add_headers(_: web.Request, answer: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)

    async with open_http(access) as http:
        users = Users(http, access, namespaces)
        app = web.Application()
        app.on_response_prepare.append(add_headers)
        app.add_routes([*routes(users.page_of), web.get("/healthz", healthy)])
        server = GuardedServer(app, context=context)
        upkeep = asyncio.create_task(_keep_up(users, context, certificate))
        try:
            port = await server.start([host], port)
            yield f"https://{host_port(host or 'localhost', port)}/"
        finally:
            upkeep.cancel()
            with suppress(asyncio.CancelledError):
                await upkeep
            users.end_streams()
            await server.stop()
            await users.close()  # last, because each request may open a page


async def _keep_up(users: Users, context: ssl.SSLContext, certificate: Path) -> None:
    """End old pages, and take a certificate that was renewed for the next connections."""
    while True:
        await asyncio.sleep(_CERTIFICATE_SECONDS)
        await users.end_old()
        try:
            context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
        except OSError as error:
            log.warning("the certificate in %s cannot be read: %s", certificate, error)


def main() -> None:
    """Run the hub until SIGTERM."""
    parser = argparse.ArgumentParser(prog="elasticjob-hub", description=__doc__)
    parser.add_argument("--certificate", type=Path, required=True, help="folder: tls.crt, tls.key")
    parser.add_argument("--port", type=int, default=8443, help="default: 8443")
    parser.add_argument(
        "--namespace", action="append", default=[], help="tried if a user may not list namespaces"
    )
    given = parser.parse_args()
    open_files.raise_limit()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        access = access_without_token(os.environ)
        asyncio.run(_serve(access, given.certificate, given.namespace, given.port))
    except (NoAccess, OSError) as error:
        sys.exit(f"elasticjob-hub: {error}")


async def _serve(access: Access, certificate: Path, namespaces: list[str], port: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serve_hub(access, certificate, namespaces=namespaces, port=port) as url:
        log.info("serving at %s", url)
        await stop.wait()
