"""Agents copy parts of checkpoints in memory to each other, over real TLS on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from elasticjob_agent import config
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller
from elasticjob_agent.state import calls, peers
from elasticjob_agent.state.calls import StateCalls
from elasticjob_agent.state.folder import StateFolder
from elasticjob_agent.state.parts import PartName, manifest, part_name
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import state_pb2 as pb
from elasticjob_operator.certificates import new_job_secrets

from tests.support.agent_process import agent_environment

STORE = "0123456789abcdef"
ROOM = 1 << 28


@cache
def _made(job: str) -> dict[str, bytes]:
    return new_job_secrets(job, "team")


def secrets(job: str = "job") -> dict[str, bytes]:
    return _made(job)


def identity(job: str = "job") -> peers.Identity:
    return peers.Identity(secrets(job)[names.SECRET_CA], secrets(job)[names.SECRET_PEER])


def checkpoint(number: int) -> str:
    return f"checkpoint-0001-{number:010}"


def name(number: int = 1, part: int = 0) -> PartName:
    return part_name(STORE, checkpoint(number), str(part))


def write_part(root: Path, what: PartName, files: dict[str, bytes]) -> None:
    folder = root.joinpath(*what)
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    sizes = {path: len(content) for path, content in files.items()}
    text = json.dumps({"parts": 2, "files": sizes})
    folder.with_name(f"{what.part}.json").write_text(text)
    (folder.parent / "complete").touch()


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


class Agents:
    """The state sides of some agents of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open: list[StateCalls] = []

    async def start(
        self, agent: str, variables: Mapping[str, str] | None = None, *, room: int = ROOM
    ) -> StateCalls:
        self.root(agent).mkdir()
        more = {
            names.ENV_TOKEN: "token",
            names.ENV_CA: secrets()[names.SECRET_CA].decode(),
            names.ENV_PEER_IDENTITY: secrets()[names.SECRET_PEER].decode(),
            names.ENV_STATE_FOLDER: str(self.root(agent)),
            names.ENV_STATE_BYTES: str(room),
            **(variables or {}),
        }
        started = StateCalls(config.load(agent_environment(more, master="127.0.0.1")))
        self.open.append(started)
        await started.open()
        return started

    def root(self, agent: str) -> Path:
        return self.folder / agent


@pytest.fixture
async def agents(tmp_path: Path) -> AsyncIterator[Agents]:
    created = Agents(tmp_path)
    yield created
    for agent in created.open:
        await agent.close()


async def call(agent: StateCalls, method: str, **fields: Any) -> dict[str, Any]:
    return await agent.handlers[method](fields, Caller(1, agent_pb2.World(round=1)))


async def fetch(agent: StateCalls, source: str, *, round_: int = 1) -> None:
    """Fetch the part from an agent that may still get it itself."""
    fields = {**name()._asdict(), "from": source, "wait": True}
    await agent.handlers["state_fetch"](fields, Caller(round_, agent_pb2.World(round=round_)))


async def address(agent: StateCalls) -> str:
    found = (await call(agent, "state_folder"))["address"]
    assert isinstance(found, str)
    return found


async def keep(agent: StateCalls, what: PartName, peer: str | None) -> None:
    await call(agent, "state_keep", **what._asdict(), peer=peer)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.guarantee("state-copies")
async def test_two_agents_replicate_a_part_of_64_mb(agents: Agents) -> None:
    first = await agents.start("first")
    second = await agents.start("second")
    content = {
        "model.pt": os.urandom(64 << 20),
        "shards/.metadata": b"x" * 1000,
        "empty": b"",
    }
    write_part(agents.root("first"), name(), content)
    await keep(first, name(), await address(second))
    complete = agents.root("second") / STORE / checkpoint(1) / "complete"
    await until(complete.exists)
    expected = files_of(agents.root("first"))
    assert files_of(agents.root("second")) == expected
    third = await agents.start("third")
    await call(third, "state_fetch", **name()._asdict(), **{"from": await address(second)})
    assert files_of(agents.root("third")) == expected
    # What is here is neither fetched nor sent again.
    agents.root("third").joinpath(*name(), "model.pt").write_bytes(b"kept")
    await call(third, "state_fetch", **name()._asdict(), **{"from": await address(second)})
    await peers.send(
        await address(third), name(), StateFolder(agents.root("second"), ROOM), identity()
    )
    assert agents.root("third").joinpath(*name(), "model.pt").read_bytes() == b"kept"


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize("who", ["another job", "no key", "the master", "another server"])
async def test_only_agents_of_the_job_are_served(agents: Agents, who: str) -> None:
    first = await agents.start("first")
    write_part(agents.root("first"), name(), {"model": b"secret"})
    authority = secrets()[names.SECRET_CA]
    own = StateFolder(agents.root("own"), ROOM)
    at = await address(first)
    if who == "no key":
        credentials = grpc.ssl_channel_credentials(authority)
        options = [("grpc.ssl_target_name_override", names.TLS_PEER_NAME)]
        async with grpc.aio.secure_channel(at, credentials, options=options) as channel:
            method: Any = channel.unary_stream(
                "/elasticjob.v1.StateService/Fetch",
                request_serializer=pb.FetchPartRequest.SerializeToString,
            )
            with pytest.raises(grpc.aio.AioRpcError, match="UNAVAILABLE"):
                async for _ in method(pb.FetchPartRequest(), timeout=10):
                    pass
        return
    pair = secrets()[names.SECRET_CERT] + secrets()[names.SECRET_KEY]
    wrong = {
        "another job": peers.Identity(authority, secrets("other")[names.SECRET_PEER]),
        "the master": peers.Identity(authority, pair),
        "another server": identity("other"),
    }[who]
    with pytest.raises(OSError, match="UNAVAILABLE"):
        await peers.fetch(at, name(), own, wrong)
    assert not agents.root("own").exists()


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("store", ".."),
        ("store", "0123456789abcdef/.."),
        ("store", None),
        ("checkpoint", ".."),
        ("checkpoint", "checkpoint-1/../../.."),
        ("checkpoint", "checkpoint-" + "1" * 500),
        ("part", "../0"),
        ("part", "01"),
        ("part", "٣"),
        ("part", 0),
        ("part", "99999"),
    ],
)
def test_a_hostile_name_of_a_part_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        part_name(**{"store": STORE, "checkpoint": checkpoint(1), "part": "0", field: value})


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        b"{" + b" " * (1 << 20) + b"}",
        b'{"parts": true, "files": {}}',
        b'{"parts": 0, "files": {}}',
        b'{"parts": 1025, "files": {}}',
        b'{"parts": 1, "files": []}',
        b'{"parts": 1, "files": {"x": -1}}',
        b'{"parts": 1, "files": {"x": 1.5}}',
        b'{"parts": 1, "files": {"x": 1e999}}',
        b'{"parts": 1, "files": {"x": 99999999999999999999999999}}',
        *(
            json.dumps({"parts": 1, "files": {path: 1}}).encode()
            for path in ("", "/etc/x", "../x", "a/../x", "a//x", "a/", ".", "a\0", "x" * 256)
        ),
        json.dumps({"parts": 1, "files": {"/".join("a" * 17): 1}}).encode(),
        json.dumps({"parts": 1, "files": {"\ud800": 1}}).encode(),
        json.dumps({"parts": 1, "files": {str(n): 1 for n in range(10_001)}}).encode(),
    ],
)
def test_a_hostile_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (each has its own text)
        manifest(text, name())


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize("sent", ["less", "more", "nothing", "conflicting paths"])
async def test_an_interrupted_or_wrong_transfer_leaves_nothing(agents: Agents, sent: str) -> None:
    first = await agents.start("first")
    files: dict[str, int] = {"a": 3, "b/c": 1 << 21}
    if sent == "conflicting paths":
        files = {"a": 1, "a/b": 1}
    text = json.dumps({"parts": 2, "files": files}).encode()
    described = pb.PartDescription(name=pb.PartName(**name()._asdict()), manifest=text)
    data = {"less": b"x" * 1000, "more": b"x" * (3 << 20), "nothing": b""}.get(sent, b"xx")

    async def chunks() -> AsyncIterator[pb.PartChunk]:
        yield pb.PartChunk(description=described)
        for start in range(0, len(data), 1 << 20):
            yield pb.PartChunk(data=data[start : start + (1 << 20)])

    async with peers._peer(await address(first), identity()) as stub:
        # gRPC says INTERNAL to a sender that is writing when the receiver refuses.
        with pytest.raises(grpc.aio.AioRpcError, match=r"FAILED_PRECONDITION|INTERNAL"):
            async for _ in stub.Send(chunks()):
                pass
    assert files_of(agents.root("first")) == {}
    assert not agents.root("first").joinpath(STORE).exists()
    assert list((agents.root("first") / "incoming").iterdir()) == []


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize("sender", ["ends", "freezes"])
async def test_a_sender_that_ends_or_freezes_leaves_nothing(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, sender: str
) -> None:
    monkeypatch.setattr(peers, "PROGRESS_SECONDS", 0.5 if sender == "freezes" else 60)
    first = await agents.start("first")
    text = json.dumps({"parts": 2, "files": {"a": 1 << 21}}).encode()
    described = pb.PartDescription(name=pb.PartName(**name()._asdict()), manifest=text)
    incoming = agents.root("first") / "incoming"
    async with peers._peer(await address(first), identity()) as stub:
        call = stub.Send()
        await call.write(pb.PartChunk(description=described))
        assert (await call.read()).wanted
        await call.write(pb.PartChunk(data=b"x" * (1 << 20)))
        assert list(incoming.iterdir())
        if sender == "ends":
            call.cancel()
        await until(lambda: not list(incoming.iterdir()))
    assert files_of(agents.root("first")) == {}


@pytest.mark.guarantee("state-copies")
async def test_a_part_that_disappears_while_it_is_fetched_leaves_nothing(agents: Agents) -> None:
    first = await agents.start("first")
    second = await agents.start("second")
    write_part(agents.root("first"), name(), {"a": b"a" * 100, "b": b"b" * 100})
    agents.root("first").joinpath(*name(), "b").unlink()
    with pytest.raises(CallError, match="No such file"):
        await call(second, "state_fetch", **name()._asdict(), **{"from": await address(first)})
    assert files_of(agents.root("second")) == {}


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize("link", ["file", "folder", "fifo"])
async def test_links_and_pipes_in_a_part_are_not_followed(agents: Agents, link: str) -> None:
    first = await agents.start("first")
    second = await agents.start("second")
    outside = agents.folder / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    write_part(agents.root("first"), name(), {"a/file": b"public"})
    inside = agents.root("first").joinpath(*name(), "a")
    (inside / "file").unlink()
    if link == "file":
        (inside / "file").symlink_to(outside / "file")
    elif link == "fifo":
        os.mkfifo(inside / "file")
    else:
        inside.rmdir()
        inside.symlink_to(outside)
    with pytest.raises(CallError, match="FAILED_PRECONDITION"):
        await call(second, "state_fetch", **name()._asdict(), **{"from": await address(first)})
    assert files_of(agents.root("second")) == {}


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize(
    "link", ["incoming", "store", "checkpoint", "part", "manifest", "complete"]
)
def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    for each in (outside, root):
        each.mkdir()
    write_part(outside, name(1), {"f": b"kept"})
    (outside / "complete").write_bytes(b"kept")
    before = files_of(outside)
    store = STORE
    of_checkpoint = checkpoint(1)
    part = name(1).part
    path, target = {
        "incoming": (root / "incoming", outside),
        "store": (root / store, outside / store),
        "checkpoint": (root / store / of_checkpoint, outside / store / of_checkpoint),
        "part": (root.joinpath(*name(1)), outside.joinpath(*name(1))),
        "manifest": (root / store / of_checkpoint / f"{part}.json", outside / "complete"),
        "complete": (root / store / of_checkpoint / "complete", outside / "complete"),
    }[link]
    folder = StateFolder(root, 1000)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    with contextlib.suppress(OSError):
        receive(folder, name(1), 100)
    with contextlib.suppress(OSError):
        folder.note_complete(name(1))
    for number in (2, 3):
        with contextlib.suppress(OSError):
            receive(folder, name(number), 100)  # the copy of the first checkpoint has to go
    assert files_of(outside) == before


def receive(folder: StateFolder, what: PartName, size: int, *, copy: bool = True) -> None:
    content = manifest(json.dumps({"parts": 2, "files": {"f": size}}).encode(), what)
    with folder.receive(what, content, copy=copy) as incoming:
        incoming.write(b"x" * size)


@pytest.mark.guarantee("state-copies")
def test_copies_of_two_checkpoints_are_kept_in_half_of_the_folder(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path, 1000)
    write_part(tmp_path, name(1, part=1), {"own": b"own"})
    for number in (1, 2, 3):
        receive(folder, name(number), 100)
    assert [number for number in (1, 2, 3) if folder.has(name(number))] == [2, 3]
    assert folder.has(name(1, part=1)), "a part of this member was removed"
    assert folder.is_complete(name(1))
    with pytest.raises(OSError, match="2 newer checkpoints"):
        receive(folder, name(1), 100)
    with pytest.raises(OSError, match="200 of the 500 for copies"):
        receive(folder, name(3, part=1), 301)
    receive(folder, name(3, part=1), 300)
    with pytest.raises(OSError, match=r"of 1000 are in use"):
        receive(folder, name(4), 500, copy=False)
    assert not (tmp_path / STORE / checkpoint(4)).exists()


@pytest.mark.guarantee("state-copies")
def test_what_an_earlier_agent_received_in_part_is_removed(tmp_path: Path) -> None:
    (tmp_path / "incoming" / "x").mkdir(parents=True)
    (tmp_path / "incoming" / "x" / "file").write_bytes(b"x" * 100)
    receive(StateFolder(tmp_path, 300), name(), 100)
    assert "incoming/x/file" not in files_of(tmp_path)


@pytest.mark.guarantee("state-copies")
async def test_a_peer_that_freezes_does_not_block_saves(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await agents.start("first")
    second = await agents.start("second")
    monkeypatch.setattr(peers, "PROGRESS_SECONDS", 0.5)
    # The kernel accepts connections to this socket, and nothing answers them.
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        for number in (1, 2, 3, 4):
            write_part(agents.root("first"), name(number), {"model": b"x"})
            at = f"127.0.0.1:{frozen.getsockname()[1]}"
            await keep(first, name(number), at if number < 3 else await address(second))
            if number == 1:
                await until(lambda: not first._waiting)
        await until((agents.root("second") / STORE / checkpoint(4) / "complete").exists)
    assert "nothing moved for" in capsys.readouterr().err
    assert sorted(files_of(agents.root("second"))) == [
        f"{STORE}/{checkpoint(4)}/{each}" for each in ("0.json", "0/model", "complete")
    ], "only the newest was waiting"


@pytest.mark.guarantee("state-copies")
async def test_a_failed_copy_is_logged_once(
    agents: Agents, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await agents.start("first")
    second = await agents.start("second", room=10)
    for number in (1, 2):
        write_part(agents.root("first"), name(number), {"model": b"x" * 100})
        await keep(first, name(number), await address(second))
        await until(lambda: not first._waiting)
    write_part(agents.root("first"), name(3), {"model": b"x"})
    await keep(first, name(3), await address(second))
    await until((agents.root("second") / STORE / checkpoint(3) / "complete").exists)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "0 of the 5 for copies" in lines[0]


@pytest.mark.guarantee("state-copies")
async def test_a_job_without_a_key_says_once_that_nothing_is_copied(
    agents: Agents, capsys: pytest.CaptureFixture[str]
) -> None:
    old = await agents.start("old", {names.ENV_PEER_IDENTITY: ""})
    assert await call(old, "state_folder") == {"path": str(agents.root("old")), "address": None}
    write_part(agents.root("old"), name(), {"model": b"x"})
    await keep(old, name(), None)
    with pytest.raises(CallError, match="cannot fetch"):
        await call(old, "state_fetch", **name()._asdict(), **{"from": "127.0.0.1:1"})
    assert capsys.readouterr().err.count("not copied to other members") == 1
    none = await agents.start("none", {names.ENV_STATE_FOLDER: ""})
    assert await call(none, "state_folder") == {"path": None, "address": None}
    assert not capsys.readouterr().err


@pytest.mark.guarantee("state-copies")
async def test_transfers_wait_for_their_turn(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "MAX_TRANSFERS", 1)
    monkeypatch.setattr(peers, "_TURN_SECONDS", 0.01)
    first = await agents.start("first")
    second = await agents.start("second")
    parts = [name(part=part) for part in (0, 1)]
    for each in parts:
        write_part(agents.root("first"), each, {"model": b"x" * (8 << 20)})
    at = await address(first)
    fetches = (call(second, "state_fetch", **each._asdict(), **{"from": at}) for each in parts)
    await asyncio.gather(*fetches)
    assert files_of(agents.root("second")) == files_of(agents.root("first"))
    assert calls.MAX_FETCHES > 1


@pytest.mark.guarantee("state-copies")
@pytest.mark.parametrize("begins", ["before", "after"])
async def test_a_part_is_fetched_from_a_member_that_gets_it(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    monkeypatch.setattr(peers, "EXPECTED_SECONDS", 0.0 if begins == "before" else 60.0)
    first, second, third = [await agents.start(each) for each in ("first", "second", "third")]
    write_part(agents.root("first"), name(), {"model": b"x" * (4 << 20)})
    serves = asyncio.Event()
    asked = asyncio.Event()
    take_turn = peers.StateServer._take_turn
    wait_for = peers.StateServer._wait_for

    async def take_turn_later(self: peers.StateServer, context: Any) -> None:
        await serves.wait()
        await take_turn(self, context)

    async def wait_for_noted(self: peers.StateServer, *arguments: Any) -> None:
        if self is second._server:
            asked.set()
        await wait_for(self, *arguments)

    monkeypatch.setattr(peers.StateServer, "_take_turn", take_turn_later)
    monkeypatch.setattr(peers.StateServer, "_wait_for", wait_for_noted)
    fetches = [fetch(second, await address(first)), fetch(third, await address(second))]
    if begins == "after":
        fetches.reverse()
    tasks = [asyncio.create_task(fetches[0])]
    await until(lambda: asked.is_set() or second._server._expected)  # type: ignore[union-attr]
    tasks.append(asyncio.create_task(fetches[1]))
    await asked.wait()
    serves.set()
    await asyncio.gather(*tasks)
    for each in ("second", "third"):
        assert files_of(agents.root(each)) == files_of(agents.root("first"))


@pytest.mark.guarantee("state-copies")
async def test_members_of_two_worlds_that_wait_for_each_other_end(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "EXPECTED_SECONDS", 0.5)
    first, second = [await agents.start(each) for each in ("first", "second")]
    fetches = (
        fetch(first, await address(second), round_=1),
        fetch(second, await address(first), round_=2),
    )
    results = await asyncio.gather(*fetches, return_exceptions=True)
    assert all("No such file" in str(each) for each in results)
