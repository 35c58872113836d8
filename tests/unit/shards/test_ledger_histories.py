"""Random histories of a data set: the ledger stays exact after any crash, loss or repetition.

After every event the ledger is compared with a simple model, a dictionary from shard to place. The
model is copied whenever the master stores its state.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

import pytest
from elasticjob_api.refusals import BadRequest, NotCurrent
from elasticjob_master.core.rendezvous.members import Identity, Members
from elasticjob_master.persistence import stored_state
from elasticjob_master.persistence.snapshot import restore_ledger, store_ledger
from elasticjob_shards import Dataset, LeasesOfRound, Ledger

from tests.support.thorough import some_of

HISTORIES = 2200
EVENTS = 50
WORKERS = ("a", "b", "c", "d")


@dataclass
class Model:
    """The place of every shard: a worker's name, `done` or `failed`; other shards are waiting."""

    place: dict[int, str] = field(default_factory=dict)

    def at(self, place: str) -> set[int]:
        return {shard for shard, where in self.place.items() if where == place}

    def move(self, shards: set[int], place: str | None) -> None:
        for shard in shards:
            self.place.pop(shard, None)
            if place is not None:
                self.place[shard] = place

    def end(self, worker: str, shard: int, place: str) -> bool:
        """End a shard as the ledger must; return whether it counts."""
        where = self.place.get(shard)
        if where in ("done", "failed"):
            return True
        if place == "failed" and where not in (None, worker):
            return False
        self.place[shard] = place
        return True

    def copy(self) -> Model:
        return Model(dict(self.place))


@dataclass(frozen=True)
class Report:
    """A report that its agent repeats until a master confirms it."""

    worker: str
    shards: frozenset[int]
    how: str
    round: int
    process: int


Stored = tuple[bytes, Model, dict[str, int]]
"""A stored state with its model, and the numbers of the processes that had ended before."""


class History:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.members = Members()
        for index, worker in enumerate(WORKERS):
            self.members.add(Identity(worker, worker, "worker", index), 0.0)
        self.ledger = Ledger(self.dataset())
        self.model = Model()
        self.round = 1
        self.rounds = dict.fromkeys(WORKERS, 1)
        self.processes = dict.fromkeys(WORKERS, 0)
        self.leased: dict[str, set[int]] = {worker: set() for worker in WORKERS}
        self.unconfirmed: list[Report] = []
        self.checkpoints: list[tuple[bytes, Model]] = [(b"", Model())]
        self.requests = 0
        self.backups: list[Stored] = []
        self.events: list[str] = []
        self.store()

    def dataset(self) -> Dataset:
        rng = self.rng
        shard_size = rng.randint(1, 5)
        kind = rng.random()
        if kind < 0.25:
            return Dataset("d", rng.randint(0, 60), shard_size, streamed=True)
        parts = tuple(rng.randint(0, 30) for _ in range(rng.randint(1, 5))) if kind < 0.5 else ()
        size = sum(parts) if parts else rng.randint(1, 150)
        if not size:
            return Dataset("d", 7, shard_size)
        shuffle = rng.random() < 0.6
        seed = rng.getrandbits(64)
        return Dataset(
            "d", size, shard_size, rng.randint(1, 3), shuffle, seed, parts, "x" if parts else ""
        )

    # --- what the master does

    def store(self) -> None:
        kept = stored_state.encode(stored_state.StoredState(ledgers=[store_ledger(self.ledger)]))
        self.stored = (kept, self.model.copy(), dict(self.processes))
        self.backups.append(self.stored)

    def kill_the_master(self) -> None:
        """Start the next master with the last stored state."""
        self.next_master(self.stored, complete=self.rng.random() < 0.7)

    def restore_a_backup(self) -> None:
        """Start the next master with a state that is older than the leases."""
        self.next_master(self.rng.choice(self.backups[-20:]), complete=True)

    def next_master(self, stored: Stored, *, complete: bool) -> None:
        """Start a master with a stored state.

        The agents report the shards that their processes hold, and the processes that have ended.
        """
        kept, model, processes = stored
        self.model = model.copy()
        self.ledger = restore_ledger(stored_state.decode(kept).ledgers[0], self.members)
        for worker in WORKERS:
            if processes[worker] != self.processes[worker]:
                self.release(worker)
        for worker in self.rng.sample(WORKERS, len(WORKERS)):
            self.tell(worker, self.leased[worker], self.rounds[worker])
            held = self.leases(self.leased[worker], self.rounds[worker])
            for report in self.unconfirmed:
                if report.worker == worker:
                    ended = report.process != self.processes[worker]
                    self.tell(worker, report.shards, report.round, ended=ended)
                    held += self.leases(report.shards, report.round)
            if complete:
                self.ledger.return_unreported(worker, held)
                shards = [each.shards for each in held if each.round >= self.ledger.restored_round]
                self.model.move(self.model.at(worker).difference(*shards), None)
        if self.rng.random() < 0.5:
            self.store()

    def leases(self, shards: Iterable[int], round_: int) -> list[LeasesOfRound]:
        return [LeasesOfRound("d", round_, sorted(shards))]

    def tell(self, worker: str, shards: Iterable[int], round_: int, *, ended: bool = False) -> None:
        """Report a worker's leases to a new master."""
        self.ledger.resume_leases(worker, LeasesOfRound("d", round_, sorted(shards), ended))
        if round_ >= self.ledger.restored_round:
            over = {"done", "failed", *(WORKERS if ended else ())}
            self.model.move(
                {shard for shard in shards if self.model.place.get(shard) not in over}, worker
            )

    # --- what workers do

    def lease(self) -> None:
        worker = self.worker()
        count = self.rng.randint(1, 12)
        most = self.rng.choice((3, 10, 1000))
        self.requests += 1
        name = f"r{self.requests}"
        room = max(0, min(count, most - len(self.model.at(worker))))
        expected = min(room, self.ledger.dataset.total - len(self.model.place))
        given = {shard.id for shard in self.ledger.lease(worker, count, name, most=most)}
        assert len(given) == expected
        assert given.isdisjoint(self.model.place), "a shard is handed out that is not waiting"
        self.model.move(given, worker)
        if (
            self.rng.random() < 0.3
        ):  # the answer is lost: the request is repeated, maybe to the next master
            if self.rng.random() < 0.3:
                self.store()
            if self.rng.random() < 0.5:
                self.kill_the_master()
            known = given & self.model.at(worker)
            again = {shard.id for shard in self.ledger.lease(worker, count, name, most=most)}
            if known - self.in_flight(worker):
                assert again == known, "a repeated request gets what it got"
            self.model.move(again, worker)
            given = again
        self.leased[worker] |= given

    def finish(self) -> None:
        self.end("done")

    def fail(self) -> None:
        if self.rng.random() < 0.3:
            self.end("failed")

    def end(self, how: str) -> None:
        worker = self.worker()
        shards = self.some(self.leased[worker])
        self.leased[worker] -= shards
        report = self.new_report(worker, shards, how)
        self.deliver(report)
        if self.rng.random() < 0.3:  # the answer is lost: the agent repeats it, now or much later
            self.unconfirmed.append(report)

    def new_report(self, worker: str, shards: set[int], how: str) -> Report:
        return Report(worker, frozenset(shards), how, self.rounds[worker], self.processes[worker])

    def deliver(self, report: Report) -> None:
        worker = report.worker
        ids = sorted(report.shards)
        done, failed = (ids, []) if report.how == "done" else ([], ids)
        answer = self.ledger.report(worker, done, [], failed, round_=report.round)
        if report.round < self.ledger.restored_round:
            assert answer == ids, "it was before the checkpoint"
            return
        assert set(answer) == {
            shard for shard in ids if not self.model.end(worker, shard, report.how)
        }
        if self.rng.random() < 0.1:
            self.unconfirmed.append(report)
            self.kill_the_master()  # before it has answered
        else:
            self.store()  # and only now it is answered

    def repeat(self) -> None:
        if self.unconfirmed:
            self.deliver(self.unconfirmed.pop(self.rng.randrange(len(self.unconfirmed))))

    def give_back(self) -> None:
        worker = self.worker()
        shards = self.some(self.leased[worker])
        self.leased[worker] -= shards
        self.ledger.report(worker, [], sorted(shards))
        self.model.move(shards & self.model.at(worker), None)
        self.store()

    def kill_a_worker(self) -> None:
        worker = self.worker()
        trained = self.some(self.leased[worker])
        if self.rng.random() < 0.5:  # its agent still has a report to deliver
            self.unconfirmed.append(self.new_report(worker, trained, "done"))
        self.end_process(worker)

    def end_process(self, worker: str) -> None:
        self.leased[worker] = set()
        self.processes[worker] += 1
        self.release(worker)

    def release(self, worker: str) -> None:
        self.ledger.release(worker)
        self.model.move(self.model.at(worker), None)

    def grow(self) -> None:
        dataset = self.ledger.dataset
        if dataset.streamed:
            size = dataset.size if dataset.ended else dataset.size + self.rng.randint(0, 20)
            self.ledger.extend(size, final=self.rng.random() < 0.1)
            self.backups.clear()
            self.store()
        else:
            with pytest.raises(BadRequest, match="not declared as streamed"):
                self.ledger.extend(1000, final=False)

    def save(self) -> None:
        model = self.model.copy()
        for worker in WORKERS:
            model.move(model.at(worker), None)
        self.checkpoints.append((self.ledger.checkpoint(), model))

    def restore(self) -> None:
        """Start a new world from a checkpoint of the model, which all its processes restore."""
        if self.rng.random() < 0.6:
            return
        self.round += 1
        for worker in WORKERS:
            self.end_process(worker)
            self.rounds[worker] = self.round
        saved, model = self.rng.choice(self.checkpoints[-3:])
        self.ledger.restore(saved, self.round)
        self.model = model.copy()
        self.store()
        if self.rng.random() < 0.3:
            self.lease()
        if self.rng.random() < 0.3:
            self.kill_the_master()
        self.ledger.restore(saved, self.round)  # by the next process: changes nothing
        with pytest.raises(NotCurrent):
            self.ledger.restore(b"another one", self.round)
        with pytest.raises(NotCurrent):
            self.ledger.restore(saved, self.round - 1)

    def in_flight(self, worker: str) -> set[int]:
        """Return the shards of a worker's reports that no master has confirmed."""
        return set[int]().union(
            *(report.shards for report in self.unconfirmed if report.worker == worker)
        )

    # --- choices and checks

    def worker(self) -> str:
        return self.rng.choice(WORKERS)

    def some(self, shards: set[int]) -> set[int]:
        return {shard for shard in sorted(shards) if self.rng.random() < 0.7}

    def check(self) -> None:
        account = self.ledger.account()
        place = list(self.model.place.values())
        done = place.count("done")
        failed = place.count("failed")
        assert (account.done, account.failed) == (done, failed)
        assert account.leased == len(place) - done - failed
        assert account.total == self.ledger.dataset.total
        assert account.waiting == account.total - len(place) >= 0
        assert self.ledger.finished == (
            done + failed == account.total and not self.ledger.dataset.growing
        )
        for worker in WORKERS:
            known = self.leased[worker] | self.in_flight(worker)
            assert known >= self.model.at(worker), (
                "a shard is leased to somebody who does not know it"
            )
        assert max(Counter(chain(*self.leased.values())).values(), default=1) == 1, (
            "two train one shard"
        )

    def play(self) -> None:
        events = [
            self.lease,
            self.finish,
            self.fail,
            self.repeat,
            self.give_back,
            self.kill_a_worker,
            self.grow,
        ]
        events += [self.save, self.restore, self.store, self.kill_the_master]
        events += [self.restore_a_backup]
        weights = (9, 8, 2, 4, 1, 2, 2, 2, 2, 2, 2, 1)
        for _ in range(EVENTS):
            event = self.rng.choices(events, weights)[0]
            self.events.append(event.__name__)
            event()
            self.check()
        self.finish_everything()

    def finish_everything(self) -> None:
        """Let workers without failures finish all remaining shards, each once."""
        for worker in WORKERS:
            self.end_process(worker)
        while self.unconfirmed:
            self.deliver(self.unconfirmed.pop())
        if self.ledger.dataset.growing:
            self.ledger.extend(0, final=True)
        while not self.ledger.finished:
            leased = [shard.id for shard in self.ledger.lease("a", 7)]
            assert leased, "what is left is leased to nobody and handed out to nobody"
            assert not self.model.place.keys() & leased
            self.model.move(set(leased), "done")
            assert self.ledger.report("a", leased) == []
        assert set(self.model.place) == set(range(self.ledger.dataset.total))
        self.check()


@pytest.mark.guarantee("leases-of-a-killed-worker")
def test_in_any_history_every_shard_ends_done_or_failed_exactly_once(thorough: bool) -> None:
    for seed in range(HISTORIES if thorough else HISTORIES // 5):
        history = History(seed)
        try:
            history.play()
        except Exception as error:
            error.add_note(
                f"history {seed} of {history.ledger.dataset}: {' '.join(history.events)}"
            )
            raise


@pytest.mark.parametrize("shuffle", some_of([False, True], every=2))
def test_a_million_shards_and_thousands_of_leases_need_little_storage(shuffle: bool) -> None:
    """1,000 workers lease 64 shards each and finish them in random order, as late as possible."""
    rng = random.Random(7)
    members = Members()
    workers = [f"{rng.getrandbits(128):032x}" for _ in range(1000)]
    for index, worker in enumerate(workers):
        members.add(Identity(worker, worker, "worker", index), 0.0)
    ledger = Ledger(Dataset("imagenet", 10_000_000, 1, epochs=90, shuffle=shuffle, seed=3))
    leased = {
        worker: [shard.id for shard in ledger.lease(worker, 64, f"{rng.getrandbits(128):032x}")]
        for worker in workers
    }
    for _ in range(8000):
        worker = rng.choice(workers)
        rng.shuffle(leased[worker])
        count = rng.randint(1, 32)
        finished = leased[worker][:count]
        leased[worker] = leased[worker][count:]
        ledger.report(worker, finished)
        again = ledger.lease(worker, 64 - len(leased[worker]), f"{rng.getrandbits(128):032x}")
        leased[worker] += [shard.id for shard in again]
    for worker in workers[:100]:
        ledger.release(worker)
    kept = stored_state.encode(stored_state.StoredState(ledgers=[store_ledger(ledger)]))
    print(f"{len(kept):,} bytes for {ledger.account()}")
    assert ledger.account().leased == 900 * 64
    assert len(kept) < 500_000
    assert len(ledger.checkpoint()) < 500_000
    loaded = restore_ledger(stored_state.decode(kept).ledgers[0], members)
    assert loaded.account() == ledger.account()
    assert store_ledger(loaded) == store_ledger(ledger)


@pytest.mark.guarantee("forged-data-checkpoint")
def test_a_checkpoint_of_another_data_set_is_refused_by_field() -> None:
    dataset = Dataset("d", 100, 10, shuffle=True, seed=1)
    ledger = Ledger(dataset)
    ledger.lease("a", 5)
    saved = ledger.checkpoint()
    for other, message in (
        (replace(dataset, size=90), "with size 100; d has 90"),
        (replace(dataset, shard_size=5), "with shard_size 10; d has 5"),
        (replace(dataset, seed=2), "with seed 1; d has 2"),
        (replace(dataset, shuffle=False), "with shuffle True; d has False"),
        (replace(dataset, parts=(100,), parts_digest="x"), "with parts ''; d has 'x'"),
    ):
        with pytest.raises(BadRequest, match=message):
            Ledger(other).restore(saved, 1)
    longer = Ledger(replace(dataset, epochs=3))
    longer.restore(saved, 1)
    assert longer.account().waiting == 30
    for damaged in (
        b"x",
        saved[:-5],
        saved + b"x",
        stored_state.encode(stored_state.StoredState()),
    ):
        fresh = Ledger(dataset)
        with pytest.raises(
            BadRequest,
            match=r"state (is not a checkpoint|has version 2; this master reads version 1)",
        ):
            fresh.restore(damaged, 1)
        assert fresh.account() == Ledger(dataset).account()


@pytest.mark.guarantee("forged-data-checkpoint")
@pytest.mark.parametrize(
    "text",
    [
        "[]", "{}", "7", "[" * 100_000, '{"version":2}', '{"version":1,"of":7}',
        '{"version":1,"of":{},"size":1e999,"fresh":0,"undone":[],"failed":[]}',
        '{"version":1,"of":{"shard_size":1,"shuffle":false,"seed":0,"parts":"","streamed":true},'
        '"size":99999999999999999999999,"fresh":0,"undone":[],"failed":[]}',
        '{"version":1,"of":{"shard_size":1,"shuffle":false,"seed":0,"parts":"","streamed":true},'
        '"size":5,"fresh":5,"undone":[0,99999999],"failed":[]}',
        '{"version":1,"of":{"shard_size":1,"shuffle":false,"seed":0,"parts":"","streamed":true},'
        '"size":5,"fresh":5,"undone":[5,1],"failed":[]}',
        '{"version":1,"of":{"shard_size":1,"shuffle":false,"seed":0,"parts":"","streamed":true},'
        '"size":5,"fresh":6,"undone":[],"failed":[]}',
        '{"version":1,"of":{"shard_size":1,"shuffle":false,"seed":0,"parts":"","streamed":true},'
        '"size":5,"fresh":5,"undone":[0,2],"failed":[1,1]}',
    ],
)  # fmt: skip
def test_forged_checkpoints_change_nothing(text: str) -> None:
    ledger = Ledger(Dataset("d", 0, 1, streamed=True))
    with pytest.raises(BadRequest, match=r"^state |^size is 9"):
        ledger.restore(zlib.compress(text.encode()), 1)
    assert (ledger.dataset.size, ledger.fresh, ledger.restored_round) == (0, 0, 0)


@pytest.mark.guarantee("forged-data-checkpoint")
@pytest.mark.thorough
def test_a_checkpoint_that_would_fill_the_memory_is_refused() -> None:
    bomb = zlib.compress(b'{"version":1,"undone":[' + b"0," * 30_000_000 + b"0]}")
    with pytest.raises(BadRequest, match="too long"):
        Ledger(Dataset("d", 10, 1)).restore(bomb, 1)
