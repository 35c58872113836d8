"""Jobs of a launcher and workers: of et-operator, and MPIJobs of Kubeflow. Pure."""

from __future__ import annotations

import re

from elasticjob_api import names
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import CONTAINER, Draft, place

LAUNCHER = "launcher"
WORKER = "worker"
POLICIES = ("Never", "OnFailure", "Always", "ExitCode")
"""Values of `restartPolicy` at et-operator and Kubeflow."""
NEVER = "Never: a failed pod fails the {what}; evicted and preempted pods are replaced nevertheless"
_DISCOVERY_SCRIPT = re.compile(r"(?:/bin/(?:ba)?sh[ ]+)?/etc/(?:edl|mpi)/discover_hosts\.sh")
_HOST_FILE = re.compile(r"(?<![\w/])(?:/etc/(edl|mpi)|/job)/((?:deepspeed-)?hostfile)\b")
_SSH_SERVER = re.compile(r"(?:^|[\s/;&|])sshd(?:\s|$)")
_TRAINS_ALONE = re.compile(r"(.*/)?(python[0-9.]*|horovodrun)")
"""Programs that the operator refuses as the command of a worker beside a launcher."""
_FEWEST = re.compile(r"--min-np[= ]+([0-9]{1,4})\b")
_MOST = re.compile(r"--max-np[= ]+([0-9]{1,4})\b")
_DEFAULT_SSH_SERVER = ["/usr/sbin/sshd", "-De"]


def add_role(draft: Draft, role: str, read: Fields, *, main: str = "") -> None:
    """Read the fields that launcher and workers share.

    `main`: the name of the container that trains; empty: the first one.
    """
    at = place(role, "template")
    template = templates.pod_template(read, "template", at)
    templates.train_in(template, main, read, at)
    written: Json = {"replicas": common_fields.replicas(read), "template": template}
    if read.text("restartPolicy", choices=POLICIES) == "Never":
        written["restartLimit"] = 0
        read.differs("restartPolicy", NEVER.format(what="member"), place(role, "restartLimit"))
    draft.add(role, written, read)


def convert(draft: Draft, slots: int | None) -> None:
    """Convert the commands of launcher and workers, and what follows from them.

    `slots`: the number of processes in a worker, if it is given.
    """
    launcher = draft.roles[LAUNCHER]
    if launcher["replicas"] != 1:
        message = f"replicas was {launcher['replicas']}; there is one launcher"
        draft.differs(LAUNCHER, message, "replicas")
        launcher["replicas"] = 1
    container = draft.container(LAUNCHER)
    text = templates.command_text(container)
    templates.change_words(container, lambda word: _DISCOVERY_SCRIPT.sub("discover_hosts", word))
    reads_file = bool(_HOST_FILE.search(templates.command_text(container)))
    if reads_file:
        templates.change_words(container, lambda word: _HOST_FILE.sub(_host_file, word))
        message = (
            f"the agent keeps files with the hosts in {names.HOST_FILES_DIRECTORY}: hostfile "
            "(host:slots) and deepspeed-hostfile (host slots=N, also for mpirun), with names for "
            "the agents' ssh, or addresses if workers have a command of their own"
        )
        draft.differs(LAUNCHER, message, *CONTAINER)
    if slots is not None:
        draft.roles[WORKER]["slotsPerReplica"] = slots
    if templates.mentions(text, "horovodrun"):
        _horovodrun(draft)
        _bounds_of_horovodrun(draft, text, slots or 1)
    else:
        _mpirun(draft, reads_file=reads_file)
    draft.spec.setdefault("runPolicy", {})["startPolicy"] = "AllReady"


def _host_file(found: re.Match[str]) -> str:
    """Return the path of a host file here.

    The live file of et-operator has a format of its own. mpirun reads all other files.
    """
    name = found[2] if found[1] == "edl" else "deepspeed-hostfile"
    return f"{names.HOST_FILES_DIRECTORY}/{name}"


def _horovodrun(draft: Draft) -> None:
    """Convert a job with horovodrun: the agents start its processes, without an ssh server."""
    draft.framework = "horovod"
    worker = draft.container(WORKER)
    command = templates.command_text(worker)
    if _SSH_SERVER.search(command) or command.startswith("sleep "):
        worker.pop("command", None)
        worker.pop("args", None)
        message = (
            "no ssh server and no keys: workers wait, and the agents start horovodrun's processes"
        )
        draft.differs(WORKER, message, *CONTAINER)
    elif _TRAINS_ALONE.fullmatch(str((worker.get("command") or [""])[0])):
        worker.pop("command")
        worker.pop("args", None)
        message = "left out: it would train alone in each worker, as the launcher starts training"
        where = f"{draft.sources[WORKER]}.template"
        draft.report.lost(where, f"command: {message}", place(WORKER, *CONTAINER))
    elif worker.get("command"):
        message = (
            "a worker with its own command can be reached only by an ssh of the image with its own "
            "keys; remove the command, and the agents start horovodrun's processes"
        )
        draft.lost(WORKER, message, *CONTAINER)
    else:
        worker.pop("args", None)
    if "discover_hosts" not in templates.command_text(draft.container(LAUNCHER)):
        message = (
            "horovodrun has fixed hosts, but members come and go here; give it "
            "--host-discovery-script discover_hosts, --min-np and --max-np"
        )
        draft.lost(LAUNCHER, message, *CONTAINER)


def _bounds_of_horovodrun(draft: Draft, text: str, slots: int) -> None:
    """Take missing bounds from horovodrun's options, which count processes."""
    worker = draft.roles[WORKER]
    fewest = _FEWEST.search(text)
    most = _MOST.search(text)
    from_options = "from the options of horovodrun"
    if "minReplicas" not in worker:
        worker["minReplicas"] = min(1, worker["replicas"])
        origin = "fewest workers to train with"
        if fewest:
            worker["minReplicas"] = -(-int(fewest[1]) // slots)  # rounded up
            origin = from_options
        draft.invented(WORKER, f"minReplicas: {origin}", "minReplicas")
    if "maxReplicas" not in worker and most:
        worker["maxReplicas"] = max(int(most[1]) // slots, 1)
        draft.invented(WORKER, f"maxReplicas: {from_options}", "maxReplicas")


def _mpirun(draft: Draft, *, reads_file: bool) -> None:
    """Convert a job with another launcher, whose ssh needs keys of the user.

    If its command does not name the file with the hosts, the user has to write that file, too.
    """
    message = (
        "launchers other than horovodrun reach workers by ssh, with keys that their operator made"
    )
    remedy = "put keys into the image or a Secret"
    draft.framework = "horovod"
    if not reads_file:
        draft.framework = "custom"
        message += ", and a host file"
        remedy += (
            ", and call: discover_hosts --hostfile > /tmp/hosts && mpirun --hostfile /tmp/hosts"
        )
        draft.roles[LAUNCHER]["completion"] = {"minSucceeded": 1}
        draft.roles[WORKER]["onWorldChange"] = "Keep"
    draft.lost(LAUNCHER, f"{message}; {remedy}", *CONTAINER)
    worker = draft.container(WORKER)
    if not worker.get("command"):
        worker["command"] = list(_DEFAULT_SSH_SERVER)
        worker.pop("args", None)
        message = "command: the ssh server that workers without a command run there"
        draft.invented(WORKER, message, *CONTAINER, "command")
    if "minReplicas" not in draft.roles[WORKER]:
        draft.fix_size(WORKER)
