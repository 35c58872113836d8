"""Uses names, addresses and images as a real node gives them to pods."""

from __future__ import annotations

import json
from functools import partial

import pytest
from elasticjob_api import names

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.real_node import container, counting_job, start_job, wait_for_progress
from tests.support.e2e.sandbox import Sandbox

pytestmark = pytest.mark.real_node
RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"


def test_members_find_each_other_by_stable_names_also_after_a_replacement(
    sandbox: Sandbox,
) -> None:
    user, pods = start_job(sandbox, counting_job("named", replicas=2))
    whole = f"{names.member_hostname('worker', 1)}.named.{sandbox.namespace}.svc"

    def known(name: str) -> bool:
        return resolved(sandbox, name) == address(user, "named-worker-1")

    for name in (f"{names.member_hostname('worker', 1)}.named", whole):
        user.until(f"{name} in the DNS", partial(known, name))
    user.kubectl("delete", "pod", "named-worker-1")
    user.until("its successor at work", lambda: user.at_rest(2) and set(user.pods()) != set(pods))
    (successor,) = set(user.pods()) - set(pods)
    user.until(
        "the same name, a new address", lambda: resolved(sandbox, whole) == address(user, successor)
    )


@pytest.mark.guarantee("master-can-be-replaced")
def test_a_master_at_a_new_address_is_reached_without_disturbing_workers(
    sandbox: Sandbox,
) -> None:
    user, before = start_job(sandbox, counting_job("led", replicas=2))
    master = names.master_service("led")
    first = address(user, master)
    service = user.get(f"service/{master}")["spec"]["clusterIP"]
    user.kubectl("delete", "pod", master, "--grace-period=0", "--force")
    successor = names.master_pod("led", 1)
    user.until("the next master's address", lambda: successor_address(user, successor))
    second = address(user, successor)
    assert second != first, "the node gave the new pod the old one's address: this shows nothing"
    user.wait("ej/led", ".status.masterAddress", f"{second}:{names.GRPC_PORT}")
    wait_for_progress(user)
    assert user.get(f"service/{master}")["spec"]["clusterIP"] == service
    assert user.pods() == before
    restarts = [container(user, name)["restartCount"] for name in before]
    assert restarts == [0, 0]
    user.until("all members still ready", lambda: user.at_rest(2))


def test_an_image_that_cannot_be_pulled_fails_the_job_at_its_deadline(
    sandbox: Sandbox,
) -> None:
    job = counting_job("mistyped", image="localhost/no-such-image:1")
    job["spec"]["runPolicy"]["pendingDeadlineSeconds"] = 8
    user = KubectlUser(sandbox, "mistyped")
    sandbox.apply(job)
    user.wait("ej/mistyped", ".status.phase", "Failed")
    message = user.status()["message"]
    assert (
        "spec.runPolicy.pendingDeadlineSeconds: mistyped-worker-0 is Pending for more than 8 s"
        in message
    )
    assert "localhost/no-such-image:1" in message
    user.until("all pods gone", lambda: not user.pods())


def resolved(sandbox: Sandbox, name: str) -> str:
    """Return the address to which worker 0 resolves a name; empty if there is none."""
    arguments = ("exec", f"{_job(name)}-worker-0", "--", "python", "-c", RESOLVE, name)
    answer = sandbox.kubectl(*arguments, check=False).split()
    return answer[0] if len(answer) == 1 else ""


def _job(name: str) -> str:
    return name.split(".")[1]


def address(user: KubectlUser, pod: str) -> str:
    """Return a pod's address."""
    found: str = user.status(f"pod/{pod}")["podIP"]
    return found


def successor_address(user: KubectlUser, pod: str) -> str:
    """Return the address of a pod that may not exist yet; empty for none."""
    found = user.kubectl("get", "pods", "--field-selector", f"metadata.name={pod}", "-o", "json")
    return "".join(item["status"].get("podIP", "") for item in json.loads(found)["items"])
