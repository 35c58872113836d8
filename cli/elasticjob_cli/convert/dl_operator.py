"""dl-operator: MXJob and TFJob of mpba.fbk.eu/v1, whose spec is a list of replica specs. Pure."""

from __future__ import annotations

from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, templates
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.naming import role_name
from elasticjob_cli.convert.report import Report

API_VERSION = "mpba.fbk.eu/v1"


def mx_job(document: Fields, report: Report) -> Json | None:
    """Convert an MXJob."""
    return _job(document, "mxnet", report)


def tf_job(document: Fields, report: Report) -> Json | None:
    """Convert a TFJob."""
    return _job(document, "tensorflow", report)


def _job(document: Fields, framework: str, report: Report) -> Json | None:
    draft = Draft(common_fields.metadata(document, of_job=True), framework)
    if isinstance(document.raw("spec"), dict):
        spec = document.map("spec")
        groups = spec.list_of_maps("replicaSpecs")
        spec.done()
    else:
        groups = document.list_of_maps("spec")
    for group in groups:
        _role(group, draft)
        group.done()
    message = (
        "failed pods are replaced, and the job ends with its workers; there no pods were watched"
    )
    report.differs("spec", message, ("spec", "replicaSpecs"))
    return jobs.finish(draft, report)


def _role(group: Fields, draft: Draft) -> None:
    kind = group.text("replicaType", required=True)
    role = role_name(kind.casefold()) if kind else "unknown"
    if role != kind.casefold():
        group.differs("replicaType", f"{kind} is {role} here", place(role))
    if role in draft.roles:
        group.refused("replicaType", f"{kind} is given twice; merge both")
        return
    written: Json = {
        "replicas": common_fields.replicas(group),
        "template": templates.pod_template(group, "template", place(role, "template")),
    }
    jobs.fixed_size(written, group.report, group.path, place(role))
    draft.add(role, written, group)
