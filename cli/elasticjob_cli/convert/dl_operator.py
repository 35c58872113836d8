"""dl-operator: MXJob and TFJob of mpba.fbk.eu/v1, whose spec is a list of replica specs. Pure."""

from __future__ import annotations

from elasticjob_api.meta import Json

from elasticjob_cli.convert import common_fields, jobs, templates
from elasticjob_cli.convert.common_fields import role_name
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.jobs import Draft, place

API_VERSION = "mpba.fbk.eu/v1"


def mx_job(document: Fields) -> Json | None:
    """Convert an MXJob."""
    return _job(document, "mxnet")


def tf_job(document: Fields) -> Json | None:
    """Convert a TFJob."""
    return _job(document, "tensorflow")


def _job(document: Fields, framework: str) -> Json | None:
    draft = jobs.begun(document, framework)
    if isinstance(document.raw("spec"), dict):
        groups = document.map("spec").list_of_maps("replicaSpecs")
    else:
        groups = document.list_of_maps("spec")
    for group in groups:
        _role(group, draft)
        group.done()
    message = (
        "failed pods are replaced, and the job ends with its workers; there no pods were watched"
    )
    document.differs("spec", message, ("spec", "replicaSpecs"))
    return jobs.finish(draft)


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
    draft.add(role, written, group)
    draft.fix_size(role)
