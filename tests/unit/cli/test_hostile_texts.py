"""No table, page or error of the command line passes control characters of others to a terminal."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import elasticjob_cli
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import (
    ElasticJob,
    ElasticJobSpec,
    ElasticJobStatus,
    Failure,
    Progress,
    ReplicaSpec,
)
from elasticjob_api.elasticpool import ElasticPool, ElasticPoolSpec, ElasticPoolStatus
from elasticjob_api.meta import Condition, ObjectMeta
from elasticjob_api.scaleplan import ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_api.v1 import job_pb2
from elasticjob_cli.common.options import reported
from elasticjob_cli.jobs.describe import page
from elasticjob_cli.jobs.listing import events_table, jobs_table, plans_table
from elasticjob_cli.jobs.pools import page as pool_page
from elasticjob_cli.jobs.pools import pools_table
from elasticjob_cli.query.top import job_view, jobs_view
from elasticjob_cli.query.topics import TOPIC_QUERIES
from elasticjob_client.errors import ClientError
from elasticjob_client.related import Event, Regarding
from google.protobuf.message import Message
from msgspec.structs import replace
from rich.console import RenderableType

from tests.support.shown import shown

pytestmark = pytest.mark.guarantee("others-texts-are-shown-plainly")

BAD = "\x1b[31m\x9b\u202e\nx"
NOW = 1_800_000_000.0
META = ObjectMeta(name=BAD, namespace=BAD, uid="u", creation_timestamp="2026-01-01T00:00:00Z")
JOB = ElasticJob(
    metadata=replace(META, annotations={names.ANNOTATION_CREATED_BY: BAD}),
    spec=ElasticJobSpec(framework="custom", replica_specs={BAD: ReplicaSpec(template={})}),
    status=ElasticJobStatus(
        message=BAD,
        workers=BAD,
        current_plan=BAD,
        conditions=[Condition(type=BAD, status="True", reason=BAD, message=BAD)],
        progress=Progress(
            steps=BAD, rate=BAD, eta=BAD, eta_seconds=1, metrics={BAD: 1.0}, stragglers=[BAD]
        ),
        failures=[Failure(pod=BAD, reason=BAD, message=BAD)],
    ),
)
PLAN = ScalePlan(
    metadata=META,
    spec=ScalePlanSpec(job_name=BAD, reason=BAD),
    status=ScalePlanStatus(change=BAD, message=BAD, waiting_for=BAD),
)
POOL = ElasticPool(
    metadata=META,
    spec=ElasticPoolSpec(selector={BAD: BAD}),
    status=ElasticPoolStatus(used=BAD, longest_waiting=BAD, last_act=BAD, message=BAD),
)
EVENT = Event(type=BAD, reason=BAD, note=BAD, regarding=Regarding(kind=BAD, name=BAD))
POD = {
    "metadata": {"name": BAD, "uid": BAD, "creationTimestamp": ""},
    "spec": {"nodeName": BAD},
    "status": {"phase": BAD, "reason": BAD, "message": BAD},
}


def filled(message: Any) -> Any:
    """Return a message with a value in each field; each text is `BAD`."""
    for field in message.DESCRIPTOR.fields:
        is_message = field.message_type is not None
        if is_message and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                key = field.message_type.fields_by_name["key"]
                getattr(message, field.name)[BAD if key.type == key.TYPE_STRING else 1] = 1
        elif is_message:
            inner = getattr(message, field.name)
            filled(inner.add() if field.is_repeated else inner)
        elif field.type == field.TYPE_STRING:
            if field.is_repeated:
                getattr(message, field.name).append(BAD)
            else:
                setattr(message, field.name, BAD)
        elif not field.is_repeated and field.type != field.TYPE_BYTES:
            setattr(message, field.name, 1)
    return message


def answer(name: str) -> Message:
    """Return an answer of a hostile master."""
    kind = {"Status": "StoredAnswers", "Members": "MemberList", "Plans": "PlanList"}.get(name, name)
    found: Message = filled(getattr(job_pb2, kind)())
    return found


ANSWERS = filled(job_pb2.StoredAnswers())
VIEWS: dict[str, RenderableType] = {
    "list": jobs_table([JOB], NOW, all_namespaces=True, wide=True),
    "plans": plans_table([PLAN], NOW, wide=True),
    "events": events_table([EVENT], NOW),
    "describe": page(
        JOB, [POD], [PLAN], [EVENT], NOW, job_pb2.StoredAnswers(report=filled(job_pb2.Report()))
    ),
    "pool list": pools_table([POOL], NOW, all_namespaces=True, wide=True),
    "pool describe": pool_page(POOL, [JOB], {BAD: [PLAN]}, NOW),
    "top": jobs_view([JOB], {}),
    "top of a job": job_view(ANSWERS),
    **{
        f"query {topic}": query.render(answer(query.name)) for topic, query in TOPIC_QUERIES.items()
    },
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_others_write_is_escaped(view: str) -> None:
    text = shown(VIEWS[view], width=1000)
    assert r"\u001b[31m\u009b\u202e\nx" in text
    assert not set(text) & set(BAD[:7].replace("[31m", ""))
    assert not [line for line in text.splitlines() if line.startswith("x")]


def test_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported():
        raise ClientError(f"job {BAD}")
    assert capsys.readouterr().err == "error: job \\u001b[31m\\u009b\\u202e\nx\n"


def test_commands_print_by_the_functions_that_escape() -> None:
    """The output of members and of commands in them is not escaped, as with kubectl."""
    root = Path(elasticjob_cli.__file__).parent
    found = {
        f"{path.relative_to(root)}: {name}"
        for folder in ("common", "jobs", "query", "run")
        for path in sorted((root / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if (name := ast.unparse(node)) in ("typer.echo", "print")
        or (name.startswith("Text(") and name not in ("Text('')", "Text(title, 'bold')"))
        or name.endswith(".add_row")
    }
    assert found == {
        "common/formatting.py: Text(printable(text, lines=lines), style)",
        "common/formatting.py: table.add_row",
    }
