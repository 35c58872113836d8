"""Names that several parts of the system share: labels, ports, environment variables, object names.

Standard library only: the agent and the training processes import this module.
"""

from __future__ import annotations

GROUP = "elasticjob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

# --- labels, on every object that belongs to a job
# ------------------------------------------------------------------
LABEL_JOB_NAME = f"{GROUP}/job-name"
LABEL_JOB_UID = f"{GROUP}/job-uid"
LABEL_ROLE = f"{GROUP}/role"
LABEL_INDEX = f"{GROUP}/index"
LABEL_INCARNATION = f"{GROUP}/incarnation"

LABEL_PROFILE = f"{GROUP}/profile"
"""On a ConfigMap with what earlier jobs needed: the profile's name. It belongs to no job, and
outlives all.
"""
PROFILE_KEY = "jobs"
"""The key in it."""

ANNOTATION_RESTARTS = f"{GROUP}/restarts"
"""On a member's pod: counted restarts of its index when it was created, so that a failure is
counted once.
"""
ANNOTATION_UNCOUNTED = f"{GROUP}/uncounted-restarts"
"""On a member's pod: the same for the uncounted restarts."""

ANNOTATION_ATTEMPT = f"{GROUP}/attempt"
"""On a member's pod, for programs: restarts of its member before, counted or not, since the job has
last begun anew.
"""
ANNOTATION_RETRY = f"{GROUP}/retry"
"""On a member's pod, for programs: how often the job had begun anew."""

ANNOTATION_STATE_OF = f"{GROUP}/state-of"
"""On the ConfigMap with a master's state: which master it belongs to."""

ANNOTATION_MADE_ANEW = f"{GROUP}/made-anew"
"""On a job's Secret: its earlier contents are lost, so pods that are older than it refuse those
that are younger.
"""

# --- field managers of server-side apply
# ----------------------------------------------------------------------------
OPERATOR = "elasticjob-operator"
MANAGED_BY = f"{GROUP}/operator"
"""`spec.runPolicy.managedBy` of a job that is this operator's; unset means the same."""
MASTER = "elasticjob-master"

# --- roles
# ----------------------------------------------------------------------------------------------------------
ROLE_MASTER = "master"
ROLE_WORKER = "worker"
"""The elastic role: the scale subresource acts on it, and ScaleIn, ScaleOut and the auto-scaler by
default.
"""

RESOURCE_GPU = "nvidia.com/gpu"
"""The extended resource that NVIDIA's device plugin offers on nodes with GPUs."""

# --- ports of the master
# --------------------------------------------------------------------------------------------
GRPC_PORT = 50051
HTTP_PORT = 50080

AGENT_READY_PORT = 50053
"""On a member's pod: its agent listens here once the master has accepted it; the readiness probe
connects to it.
"""

AGENT = "elasticjob-agent"
"""The agent's program; also the name of the init container that installs it and of the volume it is
installed to.
"""
HOST_FILES = "elasticjob-hosts"
"""Name of the volume on which a launcher's agent keeps files with the hosts."""
HOST_FILES_DIRECTORY = "/etc/edl"
"""Where that volume is in a launcher; scripts that were written for et-operator name this folder.
"""
AGENT_DIRECTORY = "/elasticjob"
"""Mount path of that volume; no image is expected to have files there."""
LIBRARY_PACKAGES = ("elasticjob", "elasticjob_api", "elasticjob_shards")
"""What a training program imports, in whatever Python it runs; they need nothing but Python's own
library.
"""

TLS_SERVER_NAME = "elasticjob-master"
"""A name in every master's certificate, so that agents can verify it whatever address they connect
to.
"""

# --- keys of the per-job Secret
# -------------------------------------------------------------------------------------
SECRET_TOKEN = "token"  # noqa: S105
SECRET_CA = "ca.crt"  # noqa: S105
SECRET_CERT = "tls.crt"  # noqa: S105
SECRET_KEY = "tls.key"  # noqa: S105

TOKEN_METADATA = "authorization"  # noqa: S105
"""gRPC metadata key and HTTP header that carry `Bearer <token>`."""

# --- environment variables that the operator sets in the containers of master and members
# ---------------------------
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
"""`VARIABLE=count`: the variable that shows GPUs to a process, and their number, where processes
divide them.
"""
ENV_FRAMEWORK = "ELASTICJOB_FRAMEWORK"
ENV_MASTER_SERVICE = "ELASTICJOB_MASTER_SERVICE"
"""Name of the master's Service; see `service_host_env`."""
ENV_TOKEN = "ELASTICJOB_TOKEN"  # noqa: S105
ENV_CA = "ELASTICJOB_CA"
ENV_TLS_CERT = "ELASTICJOB_TLS_CERT"
ENV_TLS_KEY = "ELASTICJOB_TLS_KEY"
ENV_PROCESS_RESTART_LIMIT = "ELASTICJOB_PROCESS_RESTART_LIMIT"
ENV_DRAIN_SECONDS = "ELASTICJOB_DRAIN_SECONDS"
ENV_SIGTERM_DELAY_SECONDS = "ELASTICJOB_SIGTERM_DELAY_SECONDS"
ENV_REMOTE_SHELL = "ELASTICJOB_REMOTE_SHELL"
"""Set in a launcher whose workers wait for its `ssh`: the agent puts its own on the PATH."""
ENV_HOST_FILES = "ELASTICJOB_HOST_FILES"
"""Set in a launcher: the folder in which its agent keeps files with the hosts; see
`HOST_FILES_DIRECTORY`.
"""
ENV_TERMINATION_LOG = "ELASTICJOB_TERMINATION_LOG"
"""Where the termination message goes; unset means the container's /dev/termination-log."""
ENV_RANK_PREFIX = "ELASTICJOB_RANK_PREFIX"
"""Set where the output of all members comes together: the agent puts the rank in front of each
line.
"""
ENV_AGENT_FILES = "ELASTICJOB_AGENT_FILES"
"""The folder for the agent's own small files; unset means that for temporary ones."""
ENV_CONTAINER = "ELASTICJOB_CONTAINER"
"""Which container a process belongs to: in all processes of the embedded cluster's node, and of
`elasticjob run`.
"""

# --- environment variables that the agent sets for the training process
# ---------------------------------------------
ENV_SOCKET = "ELASTICJOB_SOCKET"
ENV_ROUND = "ELASTICJOB_ROUND"
ENV_RANK = "ELASTICJOB_RANK"
ENV_WORLD_SIZE = "ELASTICJOB_WORLD_SIZE"
ENV_LOCAL_RANK = "ELASTICJOB_LOCAL_RANK"
ENV_LOCAL_SIZE = "ELASTICJOB_LOCAL_SIZE"
ENV_COORDINATOR_HOST = "ELASTICJOB_COORDINATOR_HOST"
"""The address of the pod that has rank 0. See also `hosts_env`."""

EXIT_UNFIT = 201
"""Exit code of an agent whose node has failed its check; the member may succeed on another node."""
KILLED_FOR_MEMORY = "the kernel has killed it for the memory it used"
"""In the termination message of an agent whose process was: the node does not always report it
itself.
"""
EXIT_DRAINED = 143
"""Exit code of an agent or master that was asked to end: as if ended by SIGTERM, never counted as a
failure.
"""


def master_service(job: str) -> str:
    """Return the name of the job's master Service, Secret, ServiceAccount and Role, and the master's host name."""
    return f"{job}-master"


def master_pod(job: str, incarnation: int) -> str:
    """Return the name of the master pod of an incarnation, counted from 0."""
    return master_service(job) if incarnation == 0 else f"{master_service(job)}-{incarnation}"


def query_config_map(job: str) -> str:
    """Return the name of the ConfigMap for viewers.

    What a job is queried with, and at its end the last answers.
    Operators of earlier versions make a Secret of this name instead.
    """
    return f"{job}-query"


REPORT_KEY = "report.json.gz"
"""The key in it under which the master keeps its last answers; the others are those of the Secret.
"""


def state_config_map(job: str) -> str:
    """Return the name of the ConfigMap in which the master keeps its state."""
    return f"{job}-master-state"


RULES_CONFIG_MAP = "elasticjob-restart-rules"
"""The ConfigMap in the operator's namespace with the restart rules of the whole cluster."""
RULES_KEY = "rules.yaml"
"""The key of it that has them."""


def profile_config_map(profile: str) -> str:
    """Return the name of the ConfigMap in which it is kept what the jobs of a profile needed."""
    return f"elasticjob-profile-{profile}"


def member_pod(job: str, role: str, index: int, incarnation: int) -> str:
    """Return the name of a member's pod.

    Incarnation 0 means the first use of the index in this job.
    A later use gets a name never used before, because Horovod blacklists host names for good.
    """
    first = f"{job}-{role}-{index}"
    return first if incarnation == 0 else f"{first}-{incarnation}"


def member_claim(claim: str, job: str, role: str, index: int) -> str:
    """Return the name of the volume claim that a member has of a template of this name."""
    return f"{claim}-{job}-{role}-{index}"


def member_hostname(role: str, index: int) -> str:
    """Return the stable host name of a member.

    `<hostname>.<job>.<namespace>.svc` in the cluster's DNS.
    """
    return f"{role}-{index}"


def hosts_env(role: str) -> str:
    """Return the variable with the addresses of a role's pods in a world, in the order of their indices."""
    return f"ELASTICJOB_{role.upper().replace('-', '_')}_HOSTS"


def service_host_env(service: str) -> str:
    """Return the variable in which a kubelet gives the address of a Service to a container."""
    return service.upper().replace("-", "_") + "_SERVICE_HOST"
