"""Serves the admission webhook, over TLS, on every replica.

The replicas share one Secret: the authority that the API server trusts, the certificate, and a path
that only the API server learns, so that nobody else can ask about objects that they may not read.
Authority and path are written into the webhook's configuration, which the chart creates and
removes. kopf's own server and configuration are not used (docs/architecture.md).

Whatever fails here lets the object pass: the configuration has `failurePolicy: Ignore`.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from aiohttp import web
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Conflict, KubeError, NotFound
from elasticjob_kube.resources import SECRETS, WEBHOOKS
from elasticjob_kube.session import Kube
from elasticjob_kube.tls_identity import load_identity

from elasticjob_operator.admission_review import answer
from elasticjob_operator.certificates import new_admission_secrets
from elasticjob_operator.config import Config
from elasticjob_operator.http_server import listening

log = logging.getLogger(__name__)
SERVICE = f"{names.OPERATOR}-admission"
"""The name of the webhook's Service and of its Secret."""
SECONDS = 10.0
"""The longest time for a question. The API server waits for 3 s, and then stores the object."""
_MAX_BYTES = 8 << 20
"""Of a question, which has an edited object twice. The API server stores up to 1.5 MB."""
_AT_A_TIME = 4
"""Questions that are read and answered at a time; others wait, and pass after their time."""
_UPKEEP_SECONDS = 30.0
_RETRY_SECONDS = 2.0


@asynccontextmanager
async def serve_admission(kube: Kube, config: Config) -> AsyncIterator[None]:
    """Serve the webhook inside the `async with`; without a port, serve nothing.

    Raises:
        SystemExit: the port cannot be opened.
    """
    if not config.admission_port:
        yield
        return
    webhook = _Webhook(kube, config)
    application = web.Application(client_max_size=_MAX_BYTES)
    application.router.add_post("/{token}", webhook.answer)
    upkeep = asyncio.create_task(webhook.keep_up())
    try:
        port = config.admission_port
        async with listening(application, "--admission-port", port, webhook.context):
            yield
    finally:
        upkeep.cancel()
        with suppress(asyncio.CancelledError):
            await upkeep


class _Webhook:
    def __init__(self, kube: Kube, config: Config) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._kube = kube
        self._config = config
        self._token = b""
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one question of the API server; an error lets the object pass."""
        given = request.match_info["token"].encode()
        if not self._token or not hmac.compare_digest(given, self._token):
            return web.Response(status=404)
        try:
            async with asyncio.timeout(SECONDS), self._slots:
                data = await answer(self._kube, await request.read())
        except (ValueError, RecursionError) as error:
            return web.Response(status=400, text=f"cannot be decoded: {error}\n")
        except (TimeoutError, KubeError) as error:
            return web.Response(status=503, text=f"not judged: {error}\n")
        return web.Response(body=data, content_type="application/json")

    async def keep_up(self) -> None:
        """Use the shared Secret and write it into the configuration; never return.

        Either may be deleted or restored at any time.
        """
        logged = ""
        while True:
            try:
                secrets = await self._secrets()
                if secrets[names.SECRET_TOKEN] != self._token:
                    pair = (secrets[names.SECRET_CERT], secrets[names.SECRET_KEY])
                    load_identity(self.context, *pair)
                    self._token = secrets[names.SECRET_TOKEN]
                await self._configure(secrets)
                logged = ""
            except Conflict:
                logged = "another replica was first"
            except (KubeError, ValueError, KeyError, OSError) as error:
                if logged != (logged := str(error)):
                    log.warning("the admission webhook may not be called: %s", error)
            await asyncio.sleep(_RETRY_SECONDS if logged else _UPKEEP_SECONDS)

    async def _secrets(self) -> Mapping[str, bytes]:
        """Return the contents of the Secret, which the first replica makes.

        The chart creates the Secret, empty, so that it is removed with the release.
        """
        namespace = self._config.lease_namespace
        try:
            found = await self._kube.get(SECRETS, namespace, SERVICE)
        except NotFound:
            found = await self._kube.create(SECRETS, namespace, {"metadata": {"name": SERVICE}})
        if not found.get("data"):
            made = new_admission_secrets(SERVICE, namespace, self._kube.clock.now())
            data = {key: base64.b64encode(value).decode() for key, value in made.items()}
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            body = {"metadata": version, "data": data}
            found = await self._kube.patch(SECRETS, namespace, SERVICE, body)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    async def _configure(self, secrets: Mapping[str, bytes]) -> None:
        """Write authority and path into the configuration, unless they are there."""
        name = self._config.admission_configuration
        path = "/" + secrets[names.SECRET_TOKEN].decode()
        authority = base64.b64encode(secrets[names.SECRET_CA]).decode()
        found = await self._kube.get(WEBHOOKS, None, name)
        clients = {each["name"]: each["clientConfig"] for each in found.get("webhooks", ())}
        wanted: dict[str, Json] = {}
        for each, client in clients.items():
            if url := client.get("url"):
                address: Json = {"url": urllib.parse.urljoin(url, path)}
            else:
                address = {"service": {**client["service"], "path": path}}
            wanted[each] = {**address, "caBundle": authority}
        if wanted == clients:
            return
        body = {
            "apiVersion": WEBHOOKS.api_version,
            "kind": WEBHOOKS.kind,
            "metadata": {"name": name},
            "webhooks": [{"name": each, "clientConfig": wanted[each]} for each in wanted],
        }
        await self._kube.apply(WEBHOOKS, None, name, body, field_manager=SERVICE)
        log.info("the admission webhook is configured: %s", name)
