"""One object that no decoder can read affects no other, in a list as in a watch."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from elasticjob_kube.errors import Refused
from elasticjob_kube.informer import Identity, Informer
from elasticjob_kube.resources import ELASTIC_JOBS
from elasticjob_kube.salvage import MAX_DEPTH, cut, was_cut
from elasticjob_kube.session import Kube, connect
from hypothesis import given
from hypothesis import strategies as st

from tests.support.kubeconfig import write_kubeconfig
from tests.support.served_app import served_app
from tests.support.wait import until


def deep(depth: int, brackets: str = "{}") -> str:
    start, end = ('{"a":', "}") if brackets == "{}" else ("[", "]")
    return start * depth + "1" + end * depth


# Since Python 3.12 decoders may nest ten times as deeply.
DEEP = 1 if sys.version_info < (3, 12) else 20
UNDECODABLE = {
    "deep maps": deep(1200 * DEEP),
    "deep lists": deep(9000 * DEEP, "[]"),
    "much deeper than any stack": deep(500_000, "[]"),
    "half of a surrogate pair": r'"\ud800"',
    "a surrogate pair in the wrong order": r'"\udc00\ud800"',
    "not UTF-8": '"\udcff"',
    "a huge whole number": "9" * 5000,
    "a huge number": "1e400",
    "a number where a text belongs": "3",
}


class Metadata(msgspec.Struct, rename="camel"):
    """The cached metadata."""

    uid: str
    resource_version: str


class Spec(msgspec.Struct):
    """A spec that is decoded completely."""

    note: str = ""
    rest: dict[str, Any] = {}


class Thing(msgspec.Struct):
    """An object."""

    metadata: Metadata
    spec: Spec


def thing(uid: str, version: int, value: str = '"fine"') -> bytes:
    metadata = {"uid": uid, "name": uid, "namespace": "ns", "resourceVersion": str(version)}
    field = "note" if value.isdigit() and len(value) == 1 else "rest"
    spec = f'{{"note":{value}}}' if field == "note" else f'{{"rest":{{"value":{value}}}}}'
    return f'{{"metadata":{json.dumps(metadata)},"spec":{spec}}}'.encode("utf-8", "surrogateescape")


class Server:
    """An API server with one collection: its list, and the lines of its only watch."""

    def __init__(self, *items: bytes) -> None:
        self.items = items
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            page = b'{"metadata":{"resourceVersion":"10"},"items":[' + b",".join(self.items) + b"]}"
            return web.Response(body=page if "/namespaces/" not in request.path else self.items[0])
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(await self.lines.get() + b"\n")

    def happens(self, kind: str, item: bytes) -> None:
        self.lines.put_nowait(b'{"type":"' + kind.encode() + b'","object":' + item + b"}")


@asynccontextmanager
async def session(server: Server, directory: Path) -> AsyncIterator[Kube]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    async with served_app(app) as port:
        path = write_kubeconfig(directory / "kubeconfig", f"http://127.0.0.1:{port}")
        async with connect(user_agent="test", kubeconfig=path) as kube:
            yield kube


@pytest.mark.guarantee("unreadable-object")
@pytest.mark.parametrize("case", UNDECODABLE)
async def test_only_objects_that_cannot_be_decoded_are_excluded_from_lists_and_watches(
    case: str, tmp_path: Path
) -> None:
    bad = UNDECODABLE[case]
    server = Server(thing("a", 1), thing("listed", 2, bad), thing("b", 3))
    cached: dict[str, int] = {}
    aside: list[Identity] = []

    def on_change(before: Thing | None, after: Thing | None) -> None:
        if after is not None:
            cached[after.metadata.uid] = int(after.metadata.resource_version)
        elif before is not None:
            del cached[before.metadata.uid]

    async with session(server, tmp_path) as kube:
        informer: Informer[Thing] = Informer(
            kube,
            ELASTIC_JOBS,
            Thing,
            on_change=on_change,
            on_unreadable=lambda found, _: aside.append(found),
        )
        running = asyncio.create_task(informer.run())
        try:
            await until("both others are listed", lambda: cached == {"a": 1, "b": 3})
            server.happens("ADDED", thing("watched", 11, bad))
            server.happens("MODIFIED", thing("watched", 12, bad))
            server.happens("MODIFIED", thing("a", 13))
            await until("the watch goes on", lambda: cached == {"a": 13, "b": 3})
            assert [(found.namespace, found.name, found.uid) for found in aside] == [
                ("ns", name, name) for name in ("listed", "watched")
            ]
            server.happens("MODIFIED", thing("watched", 14))
            server.happens("MODIFIED", thing("b", 15, bad))
            server.happens("DELETED", thing("a", 16, bad))
            await until(
                "what can be read again is there", lambda: cached == {"watched": 14, "b": 3}
            )
            assert [found.name for found in aside] == ["listed", "watched", "b"]
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_a_single_object_nested_too_deeply_is_refused_with_a_message(tmp_path: Path) -> None:
    async with session(Server(thing("a", 1, UNDECODABLE["deep maps"])), tmp_path) as kube:
        with pytest.raises(Refused, match="nested too deeply"):
            await kube.get(ELASTIC_JOBS, "ns", "a")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_nothing_is_cut_out_of_decodable_objects(value: Any) -> None:
    data = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    assert cut(data) == data
    assert not was_cut(msgspec.Raw(data))


@given(st.integers(MAX_DEPTH, 3 * MAX_DEPTH), st.sampled_from(["{}", "[]"]), JSON)
def test_values_that_are_too_deep_are_cut_out_and_the_rest_remains(
    depth: int, brackets: str, value: Any
) -> None:
    rest = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    data = b'{"deep":' + deep(depth, brackets).encode() + b',"rest":' + rest + b"}"
    found = msgspec.json.decode(cut(data), type=dict[str, msgspec.Raw])
    assert bytes(found["rest"]) == rest
    assert was_cut(found["deep"])
    assert not was_cut(found["rest"])
    msgspec.json.decode(found["deep"])
