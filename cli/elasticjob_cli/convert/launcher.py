"""Jobs of a launcher and workers, of et-operator and of Kubeflow's MPIJob.

With horovodrun or with mpirun. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elasticjob_api import names
from elasticjob_api.meta import Json

from elasticjob_cli.convert import jobs, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

LAUNCHER = "launcher"
WORKER = "worker"
_DISCOVERY_SCRIPT = re.compile(r"(?:/bin/(?:ba)?sh[ ]+)?/etc/(?:edl|mpi)/discover_hosts\.sh")
_HOST_FILE = re.compile(r"(?<![\w/])(?:/etc/(edl|mpi)|/job)/((?:deepspeed-)?hostfile)\b")
_SSH_SERVER = re.compile(r"(?:^|[\s/;&|])sshd(?:\s|$)")
_BOUND = {
    "minReplicas": re.compile(r"--min-np[= ]+([0-9]{1,4})\b"),
    "maxReplicas": re.compile(r"--max-np[= ]+([0-9]{1,4})\b"),
}
_DEFAULT_SSH_SERVER = ["/usr/sbin/sshd", "-De"]


@dataclass(frozen=True)
class Pods:
    """Launcher and workers as they were read, and what the job says of both."""

    launcher: Json
    worker: Json
    launcher_source: str
    worker_source: str
    slots: int | None


def read_role(read: Fields, role: str) -> Json:
    """Read what launcher and workers have in common."""
    template = templates.pod_template(read, "template", place(role, "template"))
    found: Json = {"replicas": jobs.replicas(read), "template": template}
    policy = read.text("restartPolicy", choices=("Never", "OnFailure", "Always", "ExitCode"))
    if policy == "Never":
        found["restartLimit"] = 0
        message = "Never: a failed pod fails the member; evicted and preempted pods are replaced nevertheless"
        read.report.differs(read.where("restartPolicy"), message, place(role, "restartLimit"))
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
            f"the agent keeps files with the hosts in {names.HOST_FILES_DIRECTORY}: hostfile (host:slots) and "
            "deepspeed-hostfile (host slots=N, also for mpirun), with names for the agents' ssh, or addresses if "
            "workers have a command of their own",
            place(LAUNCHER, "template", "spec", "containers", 0),
        )
    if pods.slots is not None:
        pods.worker["slotsPerReplica"] = pods.slots
    if with_horovodrun:
        _horovodrun(draft, pods, text, report)
    else:
        _mpirun(draft, pods, report, reads_file=reads_file)
    draft.roles |= {LAUNCHER: pods.launcher, WORKER: pods.worker}


def _host_file(found: re.Match[str]) -> str:
    """Return where the file is here.

    The live one of et-operator has its own form, all others are read by mpirun.
    """
    return f"{names.HOST_FILES_DIRECTORY}/{found[2] if found[1] == 'edl' else 'deepspeed-hostfile'}"


def _one_launcher(pods: Pods, report: Report) -> None:
    if pods.launcher["replicas"] != 1:
        message = f"replicas was {pods.launcher['replicas']}; there is one launcher"
        report.differs(pods.launcher_source, message, place(LAUNCHER, "replicas"))
        pods.launcher["replicas"] = 1


def _horovodrun(draft: Draft, pods: Pods, text: str, report: Report) -> None:
    """The stock launcher: the agents start what it asks for, and no ssh server is needed."""
    draft.framework = "horovod"
    worker = templates.first_container(pods.worker["template"])
    command = templates.command_text(worker)
    if _SSH_SERVER.search(command) or command.startswith("sleep "):
        for field in ("command", "args"):
            worker.pop(field, None)
        message = (
            "no ssh server and no keys: workers wait, and the agents start what horovodrun asks for"
        )
        report.differs(
            pods.worker_source, message, place(WORKER, "template", "spec", "containers", 0)
        )
    elif worker.get("command"):
        report.lost(
            pods.worker_source,
            "a worker with a command of its own is reached only by an ssh of the image with keys of its own; remove "
            "the command, and the agents start what horovodrun asks for",
            place(WORKER, "template", "spec", "containers", 0),
        )
    else:
        worker.pop("args", None)
    if not re.search(
        r"discover_hosts",
        templates.command_text(templates.first_container(pods.launcher["template"])),
    ):
        report.lost(
            pods.launcher_source,
            "horovodrun has fixed hosts, and names that they do not have here; give it --host-discovery-script "
            "discover_hosts, --min-np and --max-np",
            place(LAUNCHER, "template", "spec", "containers", 0),
        )
    _bounds_of_horovodrun(pods, text, report)
    draft.spec.setdefault("runPolicy", {})["startPolicy"] = "AllReady"


def _bounds_of_horovodrun(pods: Pods, text: str, report: Report) -> None:
    """Take bounds that the job does not have from horovodrun's options, which count processes."""
    slots = pods.slots or 1
    for name, option in _BOUND.items():
        if name in pods.worker:
            continue
        if found := option.search(text):
            # Fewest members are rounded up, most members down.
            size = int(found[1])
            pods.worker[name] = (
                -(-size // slots) if name == "minReplicas" else max(size // slots, 1)
            )
            report.invented(
                pods.worker_source, f"{name}: from the options of horovodrun", place(WORKER, name)
            )
        elif name == "minReplicas":
            pods.worker[name] = min(1, pods.worker["replicas"])
            report.invented(
                pods.worker_source, f"{name}: fewest workers to train with", place(WORKER, name)
            )


def _mpirun(draft: Draft, pods: Pods, report: Report, *, reads_file: bool) -> None:
    """Another launcher.

    Its keys are its own, and its hosts where it does not name the file with them.
    """
    draft.framework = "horovod" if reads_file else "custom"
    remedy = "put keys into the image or a Secret"
    if not reads_file:
        remedy += (
            ", and call: discover_hosts --hostfile > /tmp/hosts && mpirun --hostfile /tmp/hosts"
        )
    report.lost(
        pods.launcher_source,
        "what is not horovodrun reaches its workers by ssh, with keys that its operator made"
        f"{'' if reads_file else ', and a host file'}; {remedy}",
        place(LAUNCHER, "template", "spec", "containers", 0),
    )
    if not reads_file:
        pods.launcher["completion"] = {"minSucceeded": 1}
    worker = templates.first_container(pods.worker["template"])
    if not worker.get("command"):
        worker["command"] = list(_DEFAULT_SSH_SERVER)
        worker.pop("args", None)
        report.invented(
            pods.worker_source,
            "command: the ssh server that workers without a command have there",
            place(WORKER, "template", "spec", "containers", 0, "command"),
        )
    if "minReplicas" not in pods.worker:
        jobs.fixed_size(pods.worker, report, pods.worker_source, place(WORKER))
    if not reads_file:
        pods.worker["onWorldChange"] = "Keep"
    draft.spec.setdefault("runPolicy", {})["startPolicy"] = "AllReady"
