"""Hides references to the variables that the agent sets from the kubelet."""

from __future__ import annotations

from elasticjob_api import references
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.reserved_variables import process_variables


def hidden_from_kubelet(job: ElasticJob, container: Json) -> Json:
    """Return command, args and env in which the kubelet does not replace these variables."""
    variables = process_variables(job)
    words = {
        field: [references.hide(word, variables) for word in container[field]]
        for field in ("command", "args")
        if container.get(field)
    }
    env = [
        {**each, "value": references.hide(each["value"], variables)}
        if isinstance(each.get("value"), str)
        else each
        for each in container.get("env") or ()
    ]
    return {**words, **({"env": env} if env else {})}
