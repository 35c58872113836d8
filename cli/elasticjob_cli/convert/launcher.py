"""Jobs of a launcher and workers: of et-operator, and MPIJobs of Kubeflow. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, container_place, place
from elasticjob_cli.convert.report import Report

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


@dataclass(frozen=True)
class Pods:
    """Launcher and workers as they were read, with their paths in the document."""

    launcher: Json
    worker: Json
    launcher_source: str
    worker_source: str
    slots: int | None


def read_role(read: Fields, role: str) -> Json:
    """Read the fields that launcher and workers share."""
    template = templates.pod_template(read, "template", place(role, "template"))
    found: Json = {"replicas": common_fields.replicas(read), "template": template}
    if read.text("restartPolicy", choices=POLICIES) == "Never":
        found["restartLimit"] = 0
        read.differs("restartPolicy", NEVER.format(what="member"), place(role, "restartLimit"))
    return found


def convert(draft: Draft, pods: Pods, report: Report) -> None:
    """Write launcher and workers into a job."""
    draft.sources |= {LAUNCHER: pods.launcher_source, WORKER: pods.worker_source}
    _one_launcher(pods, report)
    container = templates.first_container(pods.launcher["template"])
    text = templates.command_text(container)
    with_horovodrun = templates.mentions(text, "horovodrun")
    templates.change_words(container, lambda word: _DISCOVERY_SCRIPT.sub("discover_hosts", word))
    reads_file = bool(_HOST_FILE.search(templates.command_text(container)))
    if reads_file:
        templates.change_words(container, lambda word: _HOST_FILE.sub(_host_file, word))
        report.differs(
            pods.launcher_source,
            f"the agent keeps files with the hosts in {names.HOST_FILES_DIRECTORY}: hostfile "
            "(host:slots) and deepspeed-hostfile (host slots=N, also for mpirun), with names for "
            "the agents' ssh, or addresses if workers have a command of their own",
            container_place(LAUNCHER),
        )
    if pods.slots is not None:
        pods.worker["slotsPerReplica"] = pods.slots
    if with_horovodrun:
        _horovodrun(draft, pods, text, report)
    else:
        _mpirun(draft, pods, report, reads_file=reads_file)
    draft.spec.setdefault("runPolicy", {})["startPolicy"] = "AllReady"
    draft.roles |= {LAUNCHER: pods.launcher, WORKER: pods.worker}


def _host_file(found: re.Match[str]) -> str:
    """Return the path of a host file here.

    The live file of et-operator has a format of its own. mpirun reads all other files.
    """
    name = found[2] if found[1] == "edl" else "deepspeed-hostfile"
    return f"{names.HOST_FILES_DIRECTORY}/{name}"


def _one_launcher(pods: Pods, report: Report) -> None:
    if pods.launcher["replicas"] != 1:
        message = f"replicas was {pods.launcher['replicas']}; there is one launcher"
        report.differs(pods.launcher_source, message, place(LAUNCHER, "replicas"))
        pods.launcher["replicas"] = 1


def _horovodrun(draft: Draft, pods: Pods, text: str, report: Report) -> None:
    """Convert a job with horovodrun: the agents start its processes, without an ssh server."""
    draft.framework = "horovod"
    worker = templates.first_container(pods.worker["template"])
    command = templates.command_text(worker)
    if _SSH_SERVER.search(command) or command.startswith("sleep "):
        worker.pop("command", None)
        worker.pop("args", None)
        message = (
            "no ssh server and no keys: workers wait, and the agents start horovodrun's processes"
        )
        report.differs(pods.worker_source, message, container_place(WORKER))
    elif _TRAINS_ALONE.fullmatch(str((worker.get("command") or [""])[0])):
        worker.pop("command")
        worker.pop("args", None)
        message = "left out: it would train alone in each worker, as the launcher starts training"
        report.lost(
            f"{pods.worker_source}.template", f"command: {message}", container_place(WORKER)
        )
    elif worker.get("command"):
        report.lost(
            pods.worker_source,
            "a worker with its own command can be reached only by an ssh of the image with its own "
            "keys; remove the command, and the agents start horovodrun's processes",
            container_place(WORKER),
        )
    else:
        worker.pop("args", None)
    launcher = templates.first_container(pods.launcher["template"])
    if "discover_hosts" not in templates.command_text(launcher):
        report.lost(
            pods.launcher_source,
            "horovodrun has fixed hosts, whose names do not exist here; give it "
            "--host-discovery-script discover_hosts, --min-np and --max-np",
            container_place(LAUNCHER),
        )
    _bounds_of_horovodrun(pods, text, report)


def _bounds_of_horovodrun(pods: Pods, text: str, report: Report) -> None:
    """Take missing bounds from horovodrun's options, which count processes."""
    slots = pods.slots or 1
    fewest = _FEWEST.search(text)
    most = _MOST.search(text)
    from_options = "from the options of horovodrun"
    if "minReplicas" not in pods.worker:
        size = min(1, pods.worker["replicas"])
        origin = "fewest workers to train with"
        if fewest:
            size = -(-int(fewest[1]) // slots)  # rounded up
            origin = from_options
        pods.worker["minReplicas"] = size
        report.invented(pods.worker_source, f"minReplicas: {origin}", place(WORKER, "minReplicas"))
    if "maxReplicas" not in pods.worker and most:
        pods.worker["maxReplicas"] = max(int(most[1]) // slots, 1)
        message = f"maxReplicas: {from_options}"
        report.invented(pods.worker_source, message, place(WORKER, "maxReplicas"))


def _mpirun(draft: Draft, pods: Pods, report: Report, *, reads_file: bool) -> None:
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
        pods.launcher["completion"] = {"minSucceeded": 1}
        pods.worker["onWorldChange"] = "Keep"
    report.lost(pods.launcher_source, f"{message}; {remedy}", container_place(LAUNCHER))
    worker = templates.first_container(pods.worker["template"])
    if not worker.get("command"):
        worker["command"] = list(_DEFAULT_SSH_SERVER)
        worker.pop("args", None)
        message = "command: the ssh server that workers without a command run there"
        report.invented(pods.worker_source, message, container_place(WORKER, "command"))
    if "minReplicas" not in pods.worker:
        jobs.fixed_size(pods.worker, report, pods.worker_source, place(WORKER))
