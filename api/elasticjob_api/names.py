"""The names that several packages share: labels, ports, environment variables, object names.

The agent and the training processes import this module, so it needs only the standard library.
"""

from __future__ import annotations

GROUP = "elasticjob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# --- labels and annotations: the labels are on every object of a job
LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_INCARNATION = f"{GROUP}/incarnation"

LABEL_PROFILE = f"{GROUP}/profile"
"""On the ConfigMap of a profile, with the needs of earlier jobs: the profile's name. It belongs to
no job, and outlives all jobs.
"""
PROFILE_KEY = "jobs"
"""The key in this ConfigMap."""

ANNOTATION_RESTARTS = f"{GROUP}/restarts"
"""On a member's pod: the counted restarts of its index at its creation, so that a failure is
counted once.
"""
ANNOTATION_UNCOUNTED = f"{GROUP}/uncounted-restarts"
"""On a member's pod: the uncounted restarts of its index at its creation."""

ANNOTATION_ATTEMPT = f"{GROUP}/attempt"
"""On a member's pod, for programs: the restarts of its member, counted or not, since the job's last
retry.
"""
ANNOTATION_RETRY = f"{GROUP}/retry"
"""On a member's pod, for programs: the number of the job's retries."""

ANNOTATION_CONTAINER = f"{GROUP}/container"
"""On each pod: the name of the container that trains, or of the master's. A webhook may inject
another container before it.
"""
ANNOTATION_OPERATOR = f"{GROUP}/operator"
"""On each pod: namespace and name of the Lease of the operator that has created it."""

ANNOTATION_STATE_OF = f"{GROUP}/state-of"
"""On the ConfigMap with a master's state: the master that it belongs to."""

ANNOTATION_CREATED_BY = f"{GROUP}/created-by"
ANNOTATION_STOPPED_BY = f"{GROUP}/stopped-by"
"""On a job: who has created and who has stopped it, by the policy of deploy/created-by."""

ANNOTATION_TRACEPARENT = f"{GROUP}/traceparent"
"""On a job: the span that has created it, as W3C's Trace Context writes it."""

ANNOTATION_MADE_ANEW = f"{GROUP}/made-anew"
"""On a job's Secret: its earlier contents are lost, so pods that are older than the Secret and
newer ones refuse each other.
"""

# --- field managers of server-side apply
OPERATOR = "elasticjob-operator"
MANAGED_BY = f"{GROUP}/operator"
"""`spec.runPolicy.managedBy` of a job that this operator manages; unset means the same."""
MASTER = "elasticjob-master"

# --- roles
ROLE_MASTER = "master"
ROLE_WORKER = "worker"
"""The elastic role, which the scale subresource changes; also the default role of ScaleIn, ScaleOut
and the auto-scaler.
"""

RESOURCE_GPU = "nvidia.com/gpu"
"""The extended resource that NVIDIA's device plugin offers on nodes with GPUs."""

# --- ports, programs and folders
GRPC_PORT = 50051
HTTP_PORT = 50080

AGENT_READY_PORT = 50053
"""The port at which a member's agent listens when the master has accepted it, for the readiness
probe.
"""

AGENT = "elasticjob-agent"
"""The agent's program, the init container that installs it, and the volume it is installed on."""
HOST_FILES = "elasticjob-hosts"
"""The volume on which a launcher's agent keeps files with the hosts."""
HOST_FILES_DIRECTORY = "/etc/edl"
"""The mount path of this volume; scripts for et-operator use this folder."""
STATE = "elasticjob-state"
"""The volume in memory on which a member keeps its training's newest checkpoints."""
STATE_DIRECTORY = "/elasticjob-state"
"""The mount path of this volume; a training container should mount nothing else there."""
AGENT_DIRECTORY = "/elasticjob"
"""The mount path of the agent's volume; images should not have files there."""
LIBRARY_PACKAGES = ("elasticjob", "elasticjob_api", "elasticjob_shards")
"""The packages that training programs import; they need only Python's standard library."""

TLS_SERVER_NAME = "elasticjob-master"
"""A name in every master's certificate: agents verify this name at any address of the master."""
TLS_PEER_NAME = "elasticjob-peer"
"""The name in the certificate that all agents of a job have for connections to each other."""

# --- keys of the job's Secret
SECRET_TOKEN = "token"  # noqa: S105
SECRET_CA = "ca.crt"  # noqa: S105
SECRET_CERT = "tls.crt"  # noqa: S105
SECRET_KEY = "tls.key"  # noqa: S105
SECRET_PEER = "peer.pem"  # noqa: S105
"""The agents' certificate and key for connections to each other."""

TOKEN_METADATA = "authorization"  # noqa: S105
"""gRPC metadata key and HTTP header that carry `Bearer <token>`."""

# --- environment variables that the operator sets in the containers of master and members
ENV_JOB_NAME = "ELASTICJOB_JOB_NAME"
ENV_JOB_UID = "ELASTICJOB_JOB_UID"
ENV_NAMESPACE = "ELASTICJOB_NAMESPACE"
ENV_POD_NAME = "ELASTICJOB_POD_NAME"
ENV_POD_UID = "ELASTICJOB_POD_UID"
ENV_POD_IP = "ELASTICJOB_POD_IP"
ENV_NODE_NAME = "ELASTICJOB_NODE_NAME"
ENV_ROLE = "ELASTICJOB_ROLE"
ENV_INDEX = "ELASTICJOB_INDEX"
ENV_INCARNATION = "ELASTICJOB_INCARNATION"
ENV_SLOTS = "ELASTICJOB_SLOTS"
ENV_DEVICES = "ELASTICJOB_DEVICES"
"""`VARIABLE=count`, if processes divide GPUs: the variable that limits a process to some of them,
and their number.
"""
ENV_FRAMEWORK = "ELASTICJOB_FRAMEWORK"
ENV_MASTER_SERVICE = "ELASTICJOB_MASTER_SERVICE"
"""The name of the master's Service; see `service_host_env`."""
ENV_TOKEN = "ELASTICJOB_TOKEN"  # noqa: S105
ENV_CA = "ELASTICJOB_CA"
ENV_PEER_IDENTITY = "ELASTICJOB_PEER_IDENTITY"
"""The agents' certificate and key for connections to each other, in PEM, if they make some."""
ENV_TLS_CERT = "ELASTICJOB_TLS_CERT"
ENV_TLS_KEY = "ELASTICJOB_TLS_KEY"
ENV_LOG_FORMAT = "ELASTICJOB_LOG_FORMAT"
"""Of the master's log: text or json."""
ENV_TRACEPARENT = "TRACEPARENT"
"""Of a master: the span of its job, in the variable that OpenTelemetry has for that."""
ENVS_OTLP = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The collector of traces, which the operator passes on to masters; without one there are none."""
ENV_PRICES = "ELASTICJOB_PRICES"
ENV_CURRENCY = "ELASTICJOB_CURRENCY"
"""Of the master, if the administrator gives prices: those of resources, and what they are in."""
ENV_PROCESS_RESTART_LIMIT = "ELASTICJOB_PROCESS_RESTART_LIMIT"
ENV_DRAIN_SECONDS = "ELASTICJOB_DRAIN_SECONDS"
ENV_SIGTERM_DELAY_SECONDS = "ELASTICJOB_SIGTERM_DELAY_SECONDS"
ENV_STANDBY = "ELASTICJOB_STANDBY"
ENV_MEMORY_LIMIT = "ELASTICJOB_MEMORY_LIMIT"
"""The container's memory limit in bytes, on a node that has no cgroups: the process node."""
ENV_STATE_FOLDER = "ELASTICJOB_STATE_FOLDER"
"""The folder in memory with the training's newest checkpoints, if there is one."""
ENV_STATE_BYTES = "ELASTICJOB_STATE_BYTES"
"""The greatest size of this folder."""
ENV_REMOTE_SHELL = "ELASTICJOB_REMOTE_SHELL"
"""Set in a launcher whose workers wait for its `ssh`: the agent puts its own `ssh` on the PATH."""
ENV_HOST_FILES = "ELASTICJOB_HOST_FILES"
"""Set in a launcher: the folder in which its agent keeps files with the hosts."""
ENV_TERMINATION_LOG = "ELASTICJOB_TERMINATION_LOG"
"""The file for the termination message; unset means the container's /dev/termination-log."""
ENV_RANK_PREFIX = "ELASTICJOB_RANK_PREFIX"
"""Set if the output of all members is merged: the agent puts the rank in front of each line."""
ENV_AGENT_FILES = "ELASTICJOB_AGENT_FILES"
"""The folder for the agent's own files; unset means the folder for temporary files."""
ENV_FILES_SHA256 = "ELASTICJOB_FILES_SHA256"
"""The digests of the job's submitted files; the agent starts no process with other files."""
ENV_PYTHON_PACKAGES = "ELASTICJOB_PYTHON_PACKAGES"
"""The folder of the packages that the job has installed, which begins PYTHONPATH."""
ENV_CONTAINER = "ELASTICJOB_CONTAINER"
"""The container of a process, in the embedded cluster and in `elasticjob run`."""

# --- environment variables that the agent sets for the training process
ENV_SOCKET = "ELASTICJOB_SOCKET"
ENV_ROUND = "ELASTICJOB_ROUND"
ENV_RANK = "ELASTICJOB_RANK"
ENV_WORLD_SIZE = "ELASTICJOB_WORLD_SIZE"
ENV_LOCAL_RANK = "ELASTICJOB_LOCAL_RANK"
ENV_LOCAL_SIZE = "ELASTICJOB_LOCAL_SIZE"
ENV_COORDINATOR_HOST = "ELASTICJOB_COORDINATOR_HOST"
"""The address of the pod that has rank 0. See also `hosts_env`."""

# --- environment variables that the user sets for the training process
ENV_TRACKER = "ELASTICJOB_TRACKER"
"""Where reported metrics also go: mlflow, tensorboard or wandb."""
ENV_TRACKER_FOLDER = "ELASTICJOB_TRACKER_FOLDER"
"""The folder for TensorBoard, which all members can write."""
ENV_OF_USERS = (ENV_TRACKER, ENV_TRACKER_FOLDER)

EXIT_UNFIT = 201
"""Exit code of an agent whose node has failed its check. Another node may be fit."""
KILLED_FOR_MEMORY = "the kernel has killed it for the memory it used"
"""A termination message of an agent. The node does not always report the reason OOMKilled."""
EXIT_DRAINED = 143
"""Exit code of an agent or master that was asked to end. It never counts as a failure."""
PERMANENT_FAILURES = frozenset({126, 127, 128, 128 + 4, 128 + 8, 128 + 31, 210})
"""Exit codes of members that end the job, by the default rules of the operator."""


def master_service(job: str) -> str:
    """Return the name of the master's Service, Secret, account and Role, and its host name."""
    return f"{job}-master"


def master_pod(job: str, incarnation: int) -> str:
    """Return the name of the master pod of an incarnation, counted from 0."""
    if incarnation == 0:
        return master_service(job)
    return f"{master_service(job)}-{incarnation}"


def query_config_map(job: str) -> str:
    """Return the name of the ConfigMap with the read-only token, and later the last answers.

    Operators of earlier versions create a Secret of this name instead.
    """
    return f"{job}-query"


REPORT_KEY = "report.json.gz"
"""The key of the master's last answers in this ConfigMap; the other keys are the Secret's."""


def state_config_map(job: str) -> str:
    """Return the name of the ConfigMap in which the master keeps its state."""
    return f"{job}-master-state"


RULES_CONFIG_MAP = "elasticjob-restart-rules"
"""The ConfigMap in the operator's namespace with the restart rules of the whole cluster."""
RULES_KEY = "rules.yaml"
"""The key of the rules in this ConfigMap."""


def profile_config_map(profile: str) -> str:
    """Return the name of the ConfigMap that stores the needs of a profile's jobs."""
    return f"elasticjob-profile-{profile}"


def member_pod(job: str, role: str, index: int, incarnation: int) -> str:
    """Return the name of a member's pod.

    Incarnation 0 is the first use of the index in this job. A later use gets a new name, because
    Horovod blacklists host names permanently.
    """
    first = f"{job}-{role}-{index}"
    if incarnation == 0:
        return first
    return f"{first}-{incarnation}"


def member_claim(claim: str, job: str, role: str, index: int) -> str:
    """Return the name of a member's volume claim from the template `claim`."""
    return f"{claim}-{job}-{role}-{index}"


def member_hostname(role: str, index: int) -> str:
    """Return the stable host name of a member, `<hostname>.<job>.<namespace>.svc` in DNS."""
    return f"{role}-{index}"


def hosts_env(role: str) -> str:
    """Return the variable with the addresses of a role's pods in a world, by index."""
    return f"ELASTICJOB_{role.upper().replace('-', '_')}_HOSTS"


def service_host_env(service: str) -> str:
    """Return the variable in which the kubelet passes the address of a Service to a container."""
    return service.upper().replace("-", "_") + "_SERVICE_HOST"
