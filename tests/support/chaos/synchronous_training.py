"""A data-parallel training: all processes agree after every step, and rank 0 saves the ledger with the model.

Usage: synchronous_training.py FOLDER SAMPLES STEP_SECONDS

The model is the list of what it was trained with: [shard, round, rank]. A checkpoint's name begins with its round, so
that none of an earlier round is taken for the newest, whenever its process writes it.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import elasticjob

from tests.support.chaos.training import PASSING, Agreement, Log, WorldEnded, end_of_world

SHARD_SIZE = 4
SAVED_EVERY = 20
Json = dict[str, Any]


def newest(volume: Path) -> Json:
    """Return the newest checkpoint."""
    found = sorted(volume.glob("checkpoint-*.json"))
    loaded: Json = json.loads(found[-1].read_text()) if found else {"model": [], "account": "", "end": False}
    return loaded


class Training:
    """One process of one world."""

    def __init__(self, folder: Path, samples: int, seconds: float) -> None:
        self.volume, self.seconds = folder / "volume", seconds
        self.log = Log(folder / "log")
        self.world = elasticjob.world()
        self.agreement = Agreement()
        begin = self.agreement.answer(None if self.world.rank else newest(self.volume))
        self.model: list[list[int]] = begin["model"]
        self.steps = 0
        self.shards = elasticjob.shards(
            "numbers", size=samples, shard_size=SHARD_SIZE, prefetch=8, restore=base64.b64decode(begin["account"])
        )

    def run(self) -> None:
        """Train until the end, or until some rank is asked to stop."""
        while True:
            shard = self.shards.take(timeout=0.3)
            if shard is not None:
                time.sleep(self.seconds)
                self.log.write(trained=shard.id)
            mine = {
                "trained": None if shard is None else shard.id,
                "stop": elasticjob.should_stop(),
                "finished": self.shards.finished,
            }
            self.agreement.gather(mine) if self.world.rank else self._decide(self.agreement.gather(mine))
            agreed = self.agreement.answer(None if self.world.rank else self._agreed)
            self.steps += 1
            if shard is not None:
                self.shards.done(shard)
                elasticjob.report_step(agreed["step"], samples=SHARD_SIZE, compute_seconds=self.seconds)
            saved = agreed["save"] and self._save(end=agreed["end"], seconds=3 if agreed["stop"] else 20)
            if agreed["stop"]:
                elasticjob.confirm_stop()
                return
            if agreed["end"]:
                if not saved:
                    sys.exit(PASSING)  # the next world begins at the last checkpoint
                return

    def _decide(self, told: list[Json]) -> None:
        trained = [(rank, each["trained"]) for rank, each in enumerate(told) if each["trained"] is not None]
        self.model += [[shard, self.world.round, rank] for rank, shard in trained]
        stop, end = any(each["stop"] for each in told), not trained and all(each["finished"] for each in told)
        save = stop or end or self.steps % SAVED_EVERY == SAVED_EVERY - 1
        self._agreed = {"stop": stop, "end": end, "save": save, "step": len(self.model)}

    def _save(self, *, end: bool, seconds: float) -> bool:
        """Save a checkpoint if all ranks' reports are stored; return whether it is saved."""
        flushed = self.agreement.gather(self.shards.flush(timeout=seconds))
        saved = self.world.rank == 0 and all(flushed) and self._write(end, seconds)
        answer: bool = self.agreement.answer(saved)
        return answer

    def _write(self, end: bool, seconds: float) -> bool:
        try:
            account = base64.b64encode(self.shards.checkpoint(timeout=seconds)).decode()
        except TimeoutError:
            return False
        name = f"checkpoint-{self.world.round:08}-{self.steps:08}.json"
        part = self.volume / f".{name}.part"
        part.write_text(json.dumps({"model": self.model, "account": account, "end": end}))
        if not elasticjob.may_commit(timeout=seconds):
            part.unlink()
            return False
        part.replace(self.volume / name)
        self.log.write(commit=name, samples=len(self.model))
        for older in sorted(self.volume.glob("checkpoint-*.json"))[:-3]:
            if older.name < name:
                older.unlink(missing_ok=True)
        return True


def main() -> None:
    """Train what is left to train."""
    try:
        Training(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()
    except (WorldEnded, elasticjob.AgentError) as error:
        print(f"this world has ended: {error}", flush=True)
        end_of_world()


if __name__ == "__main__":
    main()
