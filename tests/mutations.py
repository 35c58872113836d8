"""Mutations: operators that are broken on purpose in one place; a test must fail for each of them.

`python -m tests.mutations [NAME]` breaks a copy of the sources in one place at a time, runs the tests of the operator
on it, prints which test caught it, and ends with 1 if one was not caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
SOURCES = (
    *("api", "shards", "kube", "operator", "master", "agent", "localcluster", "cli", "tools", "bench", "proto"),
    *("tests", "docs", "crds", "pyproject.toml"),
)
SELECTIONS = (
    ("tests/unit/operator/test_simulator.py", "-k", "any_history", "--histories=500"),
    ("tests/unit/operator", "-k", "not simulator"),
)
"""Random histories first, which are independent of the mistake; then the tests of single functions."""
OPTIONS = ("--thorough", "-x", "-q", "--tb=short", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Mutation:
    """One mistake: in `path` of the operator, `old` becomes `new`."""

    name: str
    path: str
    old: str
    new: str


MUTATIONS = (
    Mutation(
        "a delete without UID",
        "pod_executor.py",
        "name, uid=uid, grace_seconds=grace_seconds)",
        "name, grace_seconds=grace_seconds)",
    ),
    Mutation(
        "a status written without resourceVersion",
        "executor.py",
        'metadata = {"resourceVersion": job.metadata.resource_version, "uid": job.metadata.uid}',
        'metadata = {"uid": job.metadata.uid}',
    ),
    Mutation(
        "the index of a pod that is still leaving is used again",
        "core/members/reconcile.py",
        "live = {pod.index for pod in pods if not pod.finished}",
        "live = {pod.index for pod in pods if not pod.finished and not pod.terminating}",
    ),
    Mutation(
        "members that have succeeded are started again",
        "core/members/reconcile.py",
        "return parse_indices(replica.succeeded_indices) | ",
        "return ",
    ),
    Mutation(
        "names are used again",
        "core/members/reconcile.py",
        "highest, incarnations = max(highest, index), incarnations + (not first_use)",
        "highest, incarnations = max(highest, index), incarnations",
    ),
    Mutation(
        "members are let go before they have drained",
        "core/scaling/plan_membership.py",
        "drained = plan.status.execution_time is not None",
        "drained = True",
    ),
    Mutation(
        "a failure is counted each time it is seen",
        "core/members/terminations.py",
        "elif pod is newest[pod.index] and not counters.include(pod.index, pod):",
        "elif pod is newest[pod.index]:",
    ),
    Mutation(
        "the line is not in order of creation",
        "core/scaling/plan_queue.py",
        "return sorted(waiting, key=lambda item: _position(observed, item))",
        "return sorted(waiting, key=lambda item: _position(observed, item), reverse=True)",
    ),
    Mutation(
        "manual plans are superseded",
        "core/scaling/plan_queue.py",
        'isinstance(item, ScalePlan) and item.spec.source == "Auto"]',
        "isinstance(item, ScalePlan)]",
    ),
    Mutation(
        "the plan of a ScaleIn or ScaleOut gets a new name each time",
        "executor.py",
        "kube.create(SCALE_PLANS, job.metadata.namespace, body)",
        "kube.create(SCALE_PLANS, job.metadata.namespace, {**body, 'metadata': {**body['metadata'], 'name': "
        "body['metadata']['name'] + (f'-{time.time():f}' if body['spec']['source'].startswith('Scale') else '')}})",
    ),
    Mutation(
        "a member goes before its replacement is ready",
        "core/scaling/migration.py",
        "any(pod.ready for pod in pods_by_member[move.role, move.replacement])",
        "any(here[move.role, move.replacement])",
    ),
    Mutation(
        "a job that has ended goes on",
        "core/decide.py",
        "    if job.status.phase in job_status.FINISHED_PHASES:\n        return _clean_up(observed, now)\n",
        "",
    ),
    Mutation(
        "a suspended plan keeps its size",
        "core/suspend.py",
        "kept = membership.counted if _is_written_back(observed, plan) else membership.before",
        "kept = membership.targets",
    ),
    Mutation(
        "a rollback forgets whom the plan removed",
        "core/scaling/completion_status.py",
        "restored = sorted(members.removed[role])[: len(unready)]",
        "restored: list[int] = []",
    ),
    Mutation(
        "what is gone comes back by a late event",
        "store.py",
        "        if uid in self._deleted_uids:\n            return False\n",
        "",
    ),
    Mutation(
        "a create without an answer is not looked for",
        "pod_executor.py",
        "            self._jobs_to_relist.add(job.metadata.uid)\n",
        "",
    ),
    Mutation(
        "somebody else's pod is taken for the job's own",
        "store.py",
        "    owners = pod.metadata.owner_references\n",
        "    return pod.metadata.labels.get(names.LABEL_JOB_UID)\n    owners = pod.metadata.owner_references\n",
    ),
    Mutation(
        "bounds are not looked at",
        "core/scaling/limits.py",
        "if size < min_replicas:",
        "if False:",
    ),
)


def main() -> int:
    wanted = sys.argv[1:]
    missed = 0
    for mutation in MUTATIONS:
        if wanted and not any(text in mutation.name for text in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="mutation-") as place:
            caught = _caught_by(mutation, Path(place))
        print(f"{mutation.name:<60} {caught or 'NOT CAUGHT'}", flush=True)
        missed += caught is None
    print(f"{missed} not caught" if missed else "all are caught")
    return int(missed > 0)


def _caught_by(mutation: Mutation, place: Path) -> str | None:
    """Return the test or seed that fails on the broken copy; None when all pass."""
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place / name)
    broken = place / "operator" / "elasticjob_operator" / mutation.path
    text = broken.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.path} has not exactly one {mutation.old!r}; renew the mutation")
    broken.write_text(text.replace(mutation.old, mutation.new))
    paths = [str(place / name) for name in SOURCES[:-1] if name != "tests"]
    for selection in SELECTIONS:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *selection, *OPTIONS],
            cwd=place,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, str(place)])},
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode == 0:
            continue
        found = re.search(r"^(seed \d+: .*)$", run.stdout, re.MULTILINE) or re.search(
            r"^FAILED (?:.*::)?(\S+)", run.stdout, re.MULTILINE
        )
        if run.returncode != 1 or found is None:
            raise SystemExit(f"{mutation.name}: the tests do not run:\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
        return found[1]
    return None


if __name__ == "__main__":
    sys.exit(main())
