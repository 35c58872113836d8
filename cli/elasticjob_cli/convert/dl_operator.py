"""dl-operator: MXJob and TFJob of mpba.fbk.eu/v1, whose spec is a list of replica specs. Pure."""

from __future__ import annotations

from elasticjob_api.meta import Json

from elasticjob_cli.convert import jobs, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.naming import role_name
from elasticjob_cli.convert.report import Report
from elasticjob_cli.convert.static_cluster import static_cluster

API_VERSION = "mpba.fbk.eu/v1"


def mx_job(document: Fields, report: Report) -> Json | None:
    """Convert an MXJob."""
    return _job(document, "mxnet", report)


def tf_job(document: Fields, report: Report) -> Json | None:
    """Convert a TFJob."""
    return _job(document, "tensorflow", report)


def _job(document: Fields, framework: str, report: Report) -> Json | None:
    draft = Draft(jobs.metadata(document, of_job=True), framework)
    if isinstance(document.raw("spec"), dict):
        spec = document.map("spec")
        groups = spec.list_of_maps("replicaSpecs")
        spec.done()
    else:
        groups = document.list_of_maps("spec")
    for group in groups:
        _role(group, draft, report)
        group.done()
    message = (
        "pods that fail are replaced, and the job ends with its workers; there nothing watched them"
    )
    report.differs("spec", message, ("spec", "replicaSpecs"))
    static_cluster(draft, report)
    return jobs.finish(draft, report)


def _role(group: Fields, draft: Draft, report: Report) -> None:
    kind = group.text("replicaType", required=True)
    role = role_name(kind.casefold()) if kind else "unknown"
    if role != kind.casefold():
        report.differs(group.where("replicaType"), f"{kind} is {role} here", place(role))
    if role in draft.roles:
        report.refused(group.where("replicaType"), f"{kind} is there twice; put both into one")
        return
    draft.sources[role] = group.path
    draft.roles[role] = {
        "replicas": jobs.replicas(group),
        "template": templates.pod_template(group, "template", place(role, "template")),
    }
    jobs.fixed_size(draft.roles[role], report, group.path, place(role))
