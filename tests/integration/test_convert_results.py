"""Applies the output of `elasticjob convert` for each sample in a server-side dry run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_kube.session import Kube

from tests.support.convert import OURS, SAMPLES, converted, sample

RESOURCES = {
    resource.kind: resource for resource in (ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS)
}


@pytest.mark.guarantee("converted-jobs-are-accepted")
@pytest.mark.parametrize("name", SAMPLES)
async def test_a_result_passes_a_server_side_dry_run(kube: Kube, namespace: str, name: str) -> None:
    for document in sample(name):
        written: Any = converted(document).object
        if written["apiVersion"] != OURS:
            continue
        written["metadata"]["namespace"] = namespace
        path = RESOURCES[written["kind"]].path(namespace)
        params = {"dryRun": "All", "fieldValidation": "Strict"}
        answer = json.loads(await kube.request("POST", path, params=params, body=written))
        assert answer["kind"] == written["kind"]
        assert answer["metadata"]["uid"]
