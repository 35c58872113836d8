"""Checks that the policy for statuses covers every field, and where policies are installed."""

from __future__ import annotations

import pytest
import yaml
from elasticjob_api.meta import Json

from tools import generate
from tools.policies import STATUS_POLICY, policies


def installed(path: str) -> list[Json]:
    documents = yaml.safe_load_all((generate.REPOSITORY / path).read_text())
    return [each for each in documents if each["kind"].startswith("ValidatingAdmissionPolicy")]


@pytest.mark.guarantee("foreign-status-writes")
def test_a_master_may_change_only_the_progress_of_a_status() -> None:
    """The policy covers new fields of the status, too."""
    schema = generate.definitions()["elasticjobs"]["spec"]["versions"][0]["schema"][
        "openAPIV3Schema"
    ]
    fields = set(schema["properties"]["status"]["properties"])
    policy, _ = policies()[STATUS_POLICY]
    compared = {each["expression"] for each in policy["spec"]["validations"]}
    assert compared == {
        f"object.?status.?{field} == oldObject.?status.?{field}" for field in fields - {"progress"}
    }
    assert "progress" in fields


def test_only_the_installation_for_all_namespaces_contains_the_policies() -> None:
    generated = [each for pair in policies().values() for each in pair]
    files = [each for name in policies() for each in installed(f"policies/{name}.yaml")]
    assert files == generated
    assert sorted(installed("deploy/base/operator.yaml"), key=str) == sorted(generated, key=str)
    assert installed("deploy/namespaced/operator.yaml") == []
