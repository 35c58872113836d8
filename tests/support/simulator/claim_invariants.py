"""Invariants of the members' volume claims."""

from __future__ import annotations

from typing import Any

from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import VOLUME_CLAIMS

from tests.support.simulator.raw_objects import (
    claims_of,
    is_terminating,
    owners,
    pod_index,
    pod_role,
)
from tests.support.simulator.recorded_history import RecordedHistory


class ClaimInvariants:
    """Checks every change of a claim, and that each member's pod uses the member's claims."""

    def __init__(self, history: RecordedHistory) -> None:
        self.history = history
        self._kept: set[str] = set()

    def check(self, before: Json | None, after: Json | None, actor: Any) -> None:
        item = after or before
        assert item is not None
        name = item["metadata"]["name"]
        labels = item["metadata"]["labels"]
        if before is not None:
            assert actor is None, f"the operator changes or deletes the claim {name}"
            if is_terminating(item):
                self.history.deleted_claims.add(name)
            by_its_user = is_terminating(before)
            assert after or by_its_user or name not in self._kept, (
                f"the claim {name} is deleted, and was to be kept"
            )
            return
        job = self.history.job_with(labels[names.LABEL_JOB_UID])
        if job is None:
            return
        spec = job["spec"]["replicaSpecs"][labels[names.LABEL_ROLE]]
        kept = spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
        assert kept == (not owners(item)), f"the claim {name} has the owners {owners(item)}"
        (self._kept.add if kept else self._kept.discard)(name)

    def check_pod(self, pod: Json, job: Json) -> None:
        """Check that a new pod's claims are those of its index, exist and belong to its job."""
        role = pod_role(pod)
        index = pod_index(pod)
        name = pod["metadata"]["name"]
        templates = job["spec"]["replicaSpecs"].get(role, {}).get("volumeClaimTemplates", ())
        wanted = [
            f"{each['metadata']['name']}-{job['metadata']['name']}-{role}-{index}"
            for each in templates
        ]
        assert claims_of(pod) == wanted, f"{name} has the claims {claims_of(pod)}"
        for claim in wanted:
            found = self.history.objects[VOLUME_CLAIMS].get(claim)
            if claim in self.history.deleted_claims:
                continue  # a user deleted it, maybe after the operator had read it
            assert found is not None, f"{name} is created before its claim {claim}"
            others = [owner for owner in owners(found) if owner["uid"] != job["metadata"]["uid"]]
            assert not others, f"{name} uses the claim {claim} of {others}"
