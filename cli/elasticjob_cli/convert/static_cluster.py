"""TensorFlow programs of other operators, in which each process knows the cluster of its start alone. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.jobs import Draft, place
from elasticjob_cli.convert.report import Report

_SAVE = (
    "when members come and go, all but the evaluator start again from the newest checkpoint: let the {saver} save when "
    "it is asked to stop, else what was trained since is done again (docs/frameworks/tensorflow.md)"
)


def static_cluster(draft: Draft, report: Report) -> None:
    """Let parameter servers start again in each world, also beside a chief, which need not be one of a newer kind."""
    servers = draft.roles.get("ps")
    if draft.framework != "tensorflow" or servers is None:
        return
    if "chief" in draft.roles:
        servers["onWorldChange"] = "Restart"
    saver = "chief" if "chief" in draft.roles else "first worker"
    report.differs(draft.sources["ps"], _SAVE.format(saver=saver), place("ps"))
