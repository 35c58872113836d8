"""Keeps the shard ledger in a process without an agent, so that a script runs alone unchanged."""

from __future__ import annotations

import base64
import threading
from concurrent.futures import Future
from typing import Any

from elasticjob_api.refusals import BadRequest
from elasticjob_shards import Dataset, Ledger, Ledgers
from elasticjob_shards.dataset import digest_of

from elasticjob._agent_connection import AgentError

_HOLDER = "alone"
_ROUND = 1


class Standalone:
    """Answers calls about data sets as an agent would, at once."""

    def __init__(self) -> None:
        """Start without data sets."""
        self._ledgers = Ledgers()
        self._lock = threading.Lock()

    def call(self, name: str, **fields: Any) -> Future[dict[str, Any]]:
        """Answer a call."""
        answer: Future[dict[str, Any]] = Future()
        try:
            with self._lock:
                answer.set_result(self._answer(name, fields))
        except BadRequest as error:
            answer.set_exception(AgentError(str(error)))
        return answer

    def _answer(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        dataset = fields.pop("dataset")
        if name == "create_dataset":
            return {"shards": self._ledgers.declare(_dataset(dataset, **fields)).dataset.total}
        return _answer_from(self._ledgers.get(dataset), name, fields)


def _dataset(
    name: str, *, parts: list[tuple[str, int]] | None = None, size: int = 0, **fields: Any
) -> Dataset:
    if not parts:
        return Dataset(name, size, **fields)
    sizes = tuple(length for _, length in parts)
    return Dataset(name, sum(sizes), parts=sizes, parts_digest=digest_of(parts), **fields)


def _answer_from(ledger: Ledger, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "lease_shards":
            leased = ledger.lease(_HOLDER, fields["count"])
            return {"shards": [shard._asdict() for shard in leased], "finished": ledger.finished}
        case "report_shards":
            return {
                "stale": ledger.report(
                    _HOLDER, fields["done"], fields["returned"], fields["failed"]
                )
            }
        case "extend_dataset":
            ledger.extend(fields["size"], final=fields["final"])
            return {"size": ledger.dataset.size}
        case "get_checkpoint":
            return {"state": base64.b64encode(ledger.checkpoint()).decode()}
        case "restore_checkpoint":
            ledger.restore(base64.b64decode(fields["state"]), _ROUND)
            return {}
        case other:
            raise AssertionError(f"no call {other!r}")
