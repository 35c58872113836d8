"""Starts the clusters for tests that need a real API server.

Each cluster is started once per test run, by the first test that needs it.
"""

import asyncio
import fcntl
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.resources import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import cluster as clusters
from elasticjob_localcluster.crds import apply_crds, apply_policies
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.flagged_programs import with_flags
from tests.support.local_job import LocalJob
from tests.support.loopback import loopback_network
from tests.support.open_sessions import close, follow_sessions, open_sessions
from tests.support.operator_process import exists
from tests.support.run_guard import start_guard
from tests.support.wait import until

pytest_plugins = ["tests.support.forked_workers"]

REPOSITORY = Path(__file__).parents[1]

# No deadline and no check of speed, because the duration of an example depends on the machine.
SPEED = (HealthCheck.too_slow,)
settings.register_profile("thorough", deadline=None, max_examples=100, suppress_health_check=SPEED)
# The same examples each time: who changes one thing is not told of another by chance.
settings.register_profile(
    "usual", deadline=None, max_examples=20, derandomize=True, suppress_health_check=SPEED
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="also slow tests; random histories and inputs in their full number",
    )
    parser.addoption(
        "--only-thorough",
        action="store_true",
        help="of these tests only those that --thorough adds or extends",
    )
    parser.addoption(
        "--share",
        default="0/1",
        metavar="K/N",
        help="only every N-th file of those with tests to run, from number K (0 to N - 1) on",
    )
    parser.addoption(
        "--kubeconfig",
        default=None,
        help="run the end-to-end tests on this cluster, not on an embedded one",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("usual")
    config.option.thorough |= config.option.only_thorough
    if config.getoption("thorough"):
        settings.load_profile("thorough")
    follow_sessions()
    config.add_cleanup(start_guard())
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt imported and collected objects from garbage collection, which takes most time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 100)  # a twentieth of the CPU less than with Python's numbers


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that the options leave out."""
    kept = items
    if config.getoption("only_thorough"):
        kept = [item for item in items if _is_extended(item)]
    elif not config.getoption("thorough"):
        kept = [item for item in items if not item.get_closest_marker("thorough")]
    kept = _share(kept, config)
    if len(kept) < len(items):
        left_out = set(items) - set(kept)
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


def _share(items: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """Return the tests in the files of the share that `--share` names."""
    number, _, count = config.getoption("share").partition("/")
    files = sorted({item.path for item in items})
    chosen = set(files[int(number) :: int(count)])
    return [item for item in items if item.path in chosen]


def _is_extended(item: pytest.Item) -> bool:
    """Return whether `--thorough` adds this test, or gives it more random inputs."""
    return (
        item.get_closest_marker("thorough") is not None
        or "thorough" in getattr(item, "fixturenames", ())
        or is_hypothesis_test(getattr(item, "function", None))
    )


@pytest.fixture(autouse=True)
def no_session_left_open() -> Iterator[None]:
    """Fail a test that leaves an HTTP session open.

    Otherwise the session's ResourceWarning fails the test that runs when it is collected.
    """
    before = open_sessions()
    yield
    left = open_sessions() - before
    if left:
        places = close(left)
        pytest.fail(f"the test has left HTTP sessions open, made at\n{places}")


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Leave out what threads of earlier tests log, such as one that retries an export."""
    earlier = set(threading.enumerate()) - {threading.current_thread()}

    def of_this_test(record: logging.LogRecord) -> bool:
        return threading.current_thread() not in earlier

    caplog.handler.addFilter(of_this_test)
    yield caplog
    caplog.handler.removeFilter(of_this_test)


@pytest.fixture(autouse=True, scope="module")
def no_garbage_left() -> Iterator[None]:
    """Collect what a file's tests have left, so that a ResourceWarning fails no other file."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Return whether random tests run in their full number, not just as regression tests."""
    return bool(request.config.getoption("thorough"))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """Run a cluster without a node and with our CRDs.

    Pods stay Pending; a test sets their status itself.
    """
    with shared_cluster(tmp_path_factory, "control-plane", control_plane_only=True) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def node_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """Run a cluster whose process node runs the pods, with our CRDs."""
    with shared_cluster(tmp_path_factory, "node-cluster", capacity={"cpu": "64"}) as cluster:
        yield cluster


@contextmanager
def shared_cluster(
    factory: pytest.TempPathFactory,
    name: str,
    *,
    control_plane_only: bool = False,
    capacity: Json | None = None,
) -> Iterator[clusters.Cluster]:
    """Run a cluster for all worker processes of a test run.

    The first process starts it, and stops it after the last one.
    """
    run = factory.getbasetemp()
    with (run / f"{name}.users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        cluster = _start(run / name, control_plane_only=control_plane_only, capacity=capacity)
        try:
            yield cluster
        finally:
            if cluster.children:  # this process started it
                fcntl.flock(users, fcntl.LOCK_EX)  # waits for the other workers
                cluster.down()


@contextmanager
def own_cluster(
    factory: pytest.TempPathFactory,
    *,
    control_plane_only: bool = False,
    capacity: Json | None = None,
    flags: Mapping[str, str] | None = None,
) -> Iterator[clusters.Cluster]:
    """Run a cluster that no other test uses, for tests that change or stop it.

    `flags`: more flags of a program, by its name.
    """
    state = factory.mktemp("own-cluster")
    environ = with_flags(factory.mktemp("programs"), flags) if flags else None
    with _start(
        state, control_plane_only=control_plane_only, capacity=capacity, environ=environ
    ) as cluster:
        yield cluster


def _start(
    state: Path,
    *,
    control_plane_only: bool,
    capacity: Json | None,
    environ: Mapping[str, str] | None = None,
) -> clusters.Cluster:
    os.environ.setdefault("GOGC", "400")  # the API server uses less CPU, and more memory
    cluster = clusters.up(
        state, control_plane_only=control_plane_only, capacity=capacity, environ=environ
    )
    try:
        asyncio.run(apply_crds(cluster.kubeconfig, REPOSITORY / "crds"))
        asyncio.run(apply_policies(cluster.kubeconfig, REPOSITORY / "policies"))
    except BaseException:
        if cluster.children:
            cluster.down()
        raise
    return cluster


@pytest.fixture
def network() -> Iterator[str]:
    """Return the prefix of a /24 loopback network that no other test uses, as `127.4.5`."""
    with loopback_network() as prefix:
        yield prefix


@pytest.fixture
def local_job(tmp_path: Path, network: str) -> Iterator[LocalJob]:
    """Return a job whose master and agents are local processes, which end with the test."""
    job = LocalJob(tmp_path, network)
    yield job
    job.end()


@pytest.fixture
async def kube(cluster: clusters.Cluster) -> AsyncIterator[Kube]:
    """Open a session with all rights to `cluster`, which each directory's conftest chooses."""
    async with connect(user_agent="elasticjob-tests", kubeconfig=cluster.kubeconfig) as session:
        yield session


@pytest.fixture
async def namespace(kube: Kube) -> str:
    """Create a namespace that accepts pods.

    It is not deleted: its cluster ends with the run, and a deletion takes the API server, etcd and
    the controllers together 0.1 s of CPU, as they look for objects of every kind.
    """
    created = await kube.create(NAMESPACES, None, {"metadata": {"generateName": "test-"}})
    name: str = created["metadata"]["name"]
    await wait_for_defaults(kube, name)
    return name


async def wait_for_defaults(kube: Kube, namespace: str) -> None:
    """Wait until a new namespace has the objects that Kubernetes puts into each.

    Without the account no pod is accepted.
    """
    for resource, needed in ((SERVICE_ACCOUNTS, "default"), (CONFIG_MAPS, "kube-root-ca.crt")):
        await until(f"{resource.kind} {needed}", partial(exists, kube, resource, namespace, needed))
