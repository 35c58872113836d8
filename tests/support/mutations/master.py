"""Mistakes in the master and in the ledger of shards."""

from __future__ import annotations

from tests.support.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a world is started before it is stored",
        "master/elasticjob_master/core/rendezvous/state.py",
        "return stored or not self.shared_state",
        "return True",
    ),
    Mutation(
        "a world is started long after it was stored",
        "master/elasticjob_master/core/rendezvous/state.py",
        "stored = self.stored_round >= self.round and now - self.stored_at <= self.timing.fence",
        "stored = self.stored_round >= self.round",
    ),
    Mutation(
        "a decision does not look at the member that has sent a message",
        "master/elasticjob_master/core/rendezvous/member_events.py",
        "    state.note(uid)\n    return _heard(state, uid, now)",
        "    return _heard(state, uid, now)",
    ),
    Mutation(
        "a process of an earlier round is current",
        "master/elasticjob_master/core/rendezvous/current_process.py",
        "elif 0 < process_round < state.round:",
        "elif False:",
    ),
    Mutation(
        "a process that has ended is current",
        "master/elasticjob_master/core/rendezvous/current_process.py",
        "return not process_round or "
        "(member is not None and member.process_round == process_round)",
        "return True",
    ),
    Mutation(
        "a member that is cut off commits",
        "master/elasticjob_master/core/rendezvous/current_process.py",
        """    if member.disconnected_since is not None:
        raise NotReadyYet(f"pod {member.identity.pod_name} is disconnected")""",
        "",
    ),
    Mutation(
        "strangers are not bounded",
        "master/elasticjob_master/core/connection_limits.py",
        "beyond = [*_beyond(strangers[len(late) :], most), *_beyond(callers, most)]",
        "beyond = _beyond(callers, most)",
    ),
    Mutation(
        "strangers may stay",
        "master/elasticjob_master/core/connection_limits.py",
        "return [*hoarders, *late, *beyond]",
        "return [*hoarders, *beyond]",
    ),
    Mutation(
        "a shard reported done is not done if another member has leased it",
        "shards/elasticjob_shards/ledger.py",
        """        uid = self._leases.pop(position, None)
        if uid is not None:
            self._holders[uid].leased.discard(position)
            return True
""",
        """        uid = self._leases.get(position)
        if uid is not None:
            return True
""",
    ),
    Mutation(
        "a report from before the restored checkpoint counts",
        "shards/elasticjob_shards/ledger.py",
        "if 0 < round_ < self.restored_round:",
        "if False:",
    ),
    Mutation(
        "a member's word does not take a lease over from another",
        "shards/elasticjob_shards/ledger.py",
        "if known is not None and not leases.ended:",
        "if known is not None and False:",
    ),
    Mutation(
        "the report of an ended process takes a lease from who trains",
        "shards/elasticjob_shards/ledger.py",
        "if known is not None and not leases.ended:",
        "if known is not None:",
    ),
    Mutation(
        "leases from before a restored checkpoint return",
        "shards/elasticjob_shards/ledger.py",
        "if leases.round < self.restored_round:",
        "if False:",
    ),
    Mutation(
        "a world that has begun is changed before all have their places",
        "master/elasticjob_master/core/rendezvous/elastic_driver.py",
        "    if state.begun_round == state.round and state.confirmed_at is None:\n"
        "        return None\n",
        "",
    ),
    Mutation(
        "who has left its world waits for a new process that has crashed",
        "master/elasticjob_master/core/rendezvous/elastic_driver.py",
        "stranded = failed or (any(m.joining for m in base) and not all(m.joining for m in new))",
        "stranded = failed",
    ),
    Mutation(
        "a shard that was given back is lost",
        "shards/elasticjob_shards/ledger.py",
        "            heapq.heappush(self._next, position)\n",
        "",
    ),
    Mutation(
        "an earlier master's write replaces that of a later one",
        "master/elasticjob_master/persistence/config_map.py",
        "if found.mark is not None and found.mark > self._mark:",
        "if False:",
    ),
)
