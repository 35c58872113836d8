"""Converts a document by its apiVersion and kind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from elasticjob_api.meta import Json

from elasticjob_cli.convert import (
    dl_operator,
    dlrover,
    et_operator,
    framework_controller,
    kubeflow,
    references,
)
from elasticjob_cli.convert.comments import Comments, placed
from elasticjob_cli.convert.dlrover_plan import scale_plan
from elasticjob_cli.convert.fields import Fields
from elasticjob_cli.convert.peers import Jobs, jobs_of, peer_job
from elasticjob_cli.convert.report import Converted, Kind, Report, field_of_a_chart, name_of, shown
from elasticjob_cli.convert.tables.rows import TABLES
from elasticjob_cli.convert.train_job import train_job
from elasticjob_cli.convert.training_runtime import KINDS, Runtimes

Converter = Callable[[Fields], Json | None]

CONVERTERS: Mapping[tuple[str, str], Converter] = MappingProxyType(
    {
        (et_operator.API_VERSION, "TrainingJob"): et_operator.training_job,
        (et_operator.API_VERSION, "ScaleIn"): et_operator.scale_in,
        (et_operator.API_VERSION, "ScaleOut"): et_operator.scale_out,
        (dlrover.API_VERSION, "ElasticJob"): dlrover.elastic_job,
        (dlrover.API_VERSION, "ScalePlan"): scale_plan,
        (framework_controller.API_VERSION, "Framework"): framework_controller.framework,
        (dl_operator.API_VERSION, "MXJob"): dl_operator.mx_job,
        (dl_operator.API_VERSION, "TFJob"): dl_operator.tf_job,
        (kubeflow.MPI_API_VERSION, "MPIJob"): kubeflow.mpi_job,
        (kubeflow.V1_API_VERSION, "MPIJob"): kubeflow.mpi_job_v1,
        (kubeflow.V1_API_VERSION, "PyTorchJob"): kubeflow.pytorch_job,
        (kubeflow.V1_API_VERSION, "TFJob"): kubeflow.tf_job,
        (kubeflow.V1_API_VERSION, "JAXJob"): kubeflow.jax_job,
        (kubeflow.TRAINER_API_VERSION, "TrainJob"): train_job,
    }
)
_GROUPS = {version.split("/")[0] for version, _ in CONVERTERS}


def convert(
    document: Any, number: int, jobs: Jobs | None = None, runtimes: Runtimes | None = None
) -> Converted:
    """Convert a document of any kind.

    Args:
        document: the values of the document.
        number: the document's place in its input, from 1.
        jobs: the jobs of its input, to which it may refer; None: only itself.
        runtimes: the runtimes of its input, which a TrainJob may name.
    """
    source = f"document {number}"
    report = Report()
    jobs = jobs_of([document]) if jobs is None else jobs
    if not isinstance(document, dict):
        report.invalid("the document", document, "a map with apiVersion and kind; remove it")
        return Converted(source, None, report.notes)
    fields = Fields(document, "", report)
    version = fields.text("apiVersion", required=True)
    kind = fields.text("kind", required=True)
    source = f"{source}, {kind} {_name(document)}".rstrip()
    if report.failed:
        return Converted(source, None, report.notes)
    if field := field_of_a_chart(document):
        report.lost(field, "is a template of Helm: render it first, such as with helm template")
    converter = CONVERTERS.get((version, kind))
    if converter is None:
        if version == kubeflow.TRAINER_API_VERSION and kind in KINDS:
            message = "remains for its other users; TrainJobs of this file that name it have it"
            report.differs("spec", message)
            return Converted(source, document, report.notes, passed_through=True)
        if version.split("/")[0] not in _GROUPS:
            changed = references.replaced(document, None, jobs, report)
            return Converted(source, changed, report.notes, passed_through=not report.notes)
        group = version.split("/")[0]
        known = ", ".join(
            f"{other} {each}" for each, other in CONVERTERS if each.split("/")[0] == group
        )
        report.refused(
            "kind",
            f"{shown(kind)} of {shown(version)} is not supported; of this group are: {known}",
        )
        return Converted(source, None, report.notes)
    report.table = TABLES[f"{kind} {version}"]
    written = train_job(fields, runtimes or {}) if converter is train_job else converter(fields)
    if written is not None:
        written = references.replaced(written, peer_job(document), jobs, report)
    fields.raw("status")
    fields.done()
    order = list(Kind)
    notes = sorted(report.notes, key=lambda note: order.index(note.kind))
    return Converted(source, None if report.failed else written, notes)


def with_comments(converted: Converted, document: Any, found: Comments) -> Converted:
    """Return a result with the comments of its document at the fields that theirs became."""
    if converted.object is None or not found:
        return converted
    unchanged = converted.passed_through
    title = "" if unchanged else f"{document['kind']} {document['apiVersion']}"
    table = TABLES.get(title, ())
    near = placed(found, document, converted.object, table)
    return replace(converted, comments=near)


def _name(document: Json) -> str:
    name = name_of(document)
    if not isinstance(name, str) or len(name) > 253:
        return ""
    return name
