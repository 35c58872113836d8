"""Global batches for processes that train in step, in a world of any size.

A shard of the data set is one global batch, and all processes train it together. They need no
message for that: the model contains a number of global batches, and the next ones follow in an
order that all of them compute. So the account of the data is in the model, and it does not count
what was loaded in advance. Rank 0 alone leases the shards and reports them for the ledger, which
each world sets to the account of its model.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterator

from elasticjob_shards import checkpoint
from elasticjob_shards.dataset import Dataset
from elasticjob_shards.shuffle import shuffled

from elasticjob._agent_connection import AgentError
from elasticjob._division import Division, Part, divide, learning_rate_factor, micro_batches
from elasticjob.datasets import open_shards
from elasticjob.key_value import KeyValue
from elasticjob.shards import Shard, Shards
from elasticjob.world import world

log = logging.getLogger("elasticjob")
_FLUSH_SECONDS = 10.0


class GlobalBatches:
    """The global batches of a data set, for this process. An iteration is the rest of an epoch.

        batches = elasticjob.global_batches("images", size=1000, global_batch=100, step=0)
        for part in batches:
            train(part.indices, scale=part.scale)

    Attributes:
        step: the global batches that this process has got completely.
        division: how a global batch is divided in this world.
        learning_rate_factor: the number by which to multiply the learning rate; see
            `global_batches`.
    """

    def __init__(
        self,
        dataset: Dataset,
        ledger: Shards[Shard] | None,
        *,
        shuffle: bool,
        step: int,
        place: tuple[int, int],
        micro_batch: int | None = None,
        learning_rate_factor: float = 1.0,
    ) -> None:
        """Begin after `step` global batches, as a rank of a number of processes: the place."""
        self._dataset = dataset
        self._shuffle = shuffle
        self.step = step
        self._rank, self._processes = place
        self._micro_batch = micro_batch
        self.division: Division = divide(dataset.shard_size, self._processes, micro_batch)
        self.learning_rate_factor = learning_rate_factor
        self._ledger = ledger
        self._leased: deque[Shard] = deque()
        """The leased and unreported shards."""
        self._next_lease = step
        self._lock = threading.Lock()
        """Held to lease: an iteration that was left may still load in another thread."""

    @property
    def epoch(self) -> int:
        """The present epoch, counted from 0; after the last one their number."""
        return self.step // self._dataset.per_epoch

    @property
    def finished(self) -> bool:
        """Whether this process has got all epochs."""
        return self.step >= self._dataset.total

    @property
    def metrics(self) -> dict[str, float]:
        """The division and the factor, for `report_step`."""
        return {
            "global_batch": self._dataset.shard_size,
            "micro_batch": self.division.micro_batch,
            "accumulation": self.division.accumulation,
            "learning_rate_factor": self.learning_rate_factor,
        }

    def __len__(self) -> int:
        """Return the micro-batches of a whole epoch."""
        whole, rest = divmod(self._dataset.size, self._dataset.shard_size)
        tail = divide(rest, self._processes, self._micro_batch).accumulation if rest else 0
        return whole * self.division.accumulation + tail

    def __iter__(self) -> Iterator[Part]:
        """Yield the rest of the epoch. A global batch is trained when the next one is requested."""
        for part in self.parts():
            self.deliver(part.batch, last=part.last)
            yield part
        self.end_epoch()

    # --- for adapters, which load samples in advance

    def parts(self) -> Iterator[Part]:
        """Yield the rest of the epoch, for samples that are loaded in advance."""
        self._report(self.step)
        end = min((self.epoch + 1) * self._dataset.per_epoch, self._dataset.total)
        for number in range(self.step, end):
            self._lease(number)
            shard = self._dataset.at(number)
            for places, scale, last in micro_batches(
                shard.end - shard.start, self._rank, self._processes, self._micro_batch
            ):
                indices = [self._sample(shard.epoch, shard.start + place) for place in places]
                yield Part(number, shard.epoch, indices, scale, last)

    def deliver(self, batch: int, *, last: bool) -> None:
        """Note that the training gets a part of a global batch: it has trained those before."""
        self._report(batch)
        if last:
            self.step = batch + 1

    def end_epoch(self) -> None:
        """Note that the training has requested more after the last part of an epoch."""
        self._report(self.step)
        if self.finished and self._ledger and not self._ledger.flush(_FLUSH_SECONDS):
            log.warning("data set %s: the last shards are not reported", self._dataset.name)

    def _sample(self, epoch: int, position: int) -> int:
        """Return the sample at a position of an epoch; the shards themselves are in order."""
        if not self._shuffle:
            return position
        return shuffled(position, self._dataset.size, self._dataset.seed, epoch)

    def _lease(self, number: int) -> None:
        if self._ledger is None:
            return
        with self._lock:
            if number < self._next_lease:
                return
            shard = self._ledger.take()
            if shard is None or shard.id != number:
                raise AgentError(
                    f"shard {number} of data set {self._dataset.name} is leased by another "
                    "process: let all processes open it by global_batches"
                )
            self._leased.append(shard)
            self._next_lease = number + 1

    def _report(self, end: int) -> None:
        while self._ledger is not None and self._leased and self._leased[0].id < end:
            self._ledger.done(self._leased.popleft())


def global_batches(
    name: str,
    *,
    size: int,
    global_batch: int,
    step: int,
    micro_batch: int | None = None,
    epochs: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    learning_rate: str = "none",
    reference_batch: int | None = None,
    prefetch: int = 64,
    rank: int | None = None,
    processes: int | None = None,
) -> GlobalBatches:
    """Open a data set for processes that train each global batch together; all pass the same.

        batches = elasticjob.global_batches("images", size=1000, global_batch=100, step=0)
        while not batches.finished:
            for part in batches:
                train(part.indices, scale=part.scale)

    Args:
        name: the data set's name within the job.
        size: the number of samples.
        global_batch: the samples of a step of all processes; the last one of an epoch has the rest.
        step: the global batches that the loaded model contains; 0 for a new one.
        micro_batch: the most samples that a process can train at once. Default: all of its part.
        epochs: the number of times that each sample is trained.
        shuffle: whether the samples of each epoch are in another random order.
        seed: the seed of these orders.
        learning_rate: the rule for `learning_rate_factor`: `none`, `linear` or `sqrt`.
        reference_batch: the global batch for which the learning rate was chosen. Default:
            `global_batch`.
        prefetch: shards leased ahead by rank 0; see `shards`.
        rank: this process among those that train different samples. Default: its rank in the world.
        processes: the number of these, where some train the same samples, as parts of a model.

    Raises:
        ValueError: a number makes no sense, or is another one in another process.
        AgentError: as for `shards`.
    """
    here = world()
    reference = global_batch if reference_batch is None else reference_batch
    place = (here.rank if rank is None else rank, processes or here.size)
    least = {"size": size, "global_batch": global_batch, "epochs": epochs, "prefetch": prefetch}
    least |= {"reference_batch": reference, "processes": place[1]}
    for field, value in {"micro_batch": micro_batch, **least}.items():
        if value is not None and value < 1:
            raise ValueError(f"{field} is {value}; it must be 1 or more")
    if not 0 <= place[0] < place[1]:
        raise ValueError(f"rank is {place[0]}; it must be from 0 to {place[1] - 1} (processes)")
    dataset = Dataset(name, size, global_batch, epochs, seed=seed)
    if not 0 <= step <= dataset.total:
        raise ValueError(f"step is {step}; it must be from 0 to {dataset.total}, the steps in all")
    factor = learning_rate_factor(learning_rate, batch=global_batch, reference=reference)
    if here.size > 1:
        same = {"step": step, "micro_batch": micro_batch, "shuffle": shuffle, "seed": seed}
        _compare(name, {**least, **same})
    return GlobalBatches(
        dataset,
        _open(dataset, step, prefetch) if here.rank == 0 else None,
        shuffle=shuffle,
        step=step,
        place=place,
        micro_batch=micro_batch,
        learning_rate_factor=factor,
    )


def _compare(name: str, mine: dict[str, int | None]) -> None:
    """Raise ValueError if another process of this world has other numbers."""
    value = json.dumps(mine).encode()
    first = KeyValue().compare_and_set(f"elasticjob/batches/{name}", None, value) or value
    for field, other in json.loads(first).items():
        if mine[field] != other:
            raise ValueError(
                f"{field} of data set {name} is {mine[field]} in rank {world().rank} and {other} "
                "in another process: all must pass the same, and load the same checkpoint"
            )


def _open(dataset: Dataset, step: int, prefetch: int) -> Shards[Shard]:
    """Open the ledger at the account of the model; its shards are leased in order."""
    fields = {name: getattr(dataset, name) for name in ("size", "shard_size", "epochs", "seed")}
    account = checkpoint.encode(dataset, checkpoint.Position(step, [], []))
    return open_shards(dataset.name, fields, Shard, prefetch=prefetch, restore=account)
