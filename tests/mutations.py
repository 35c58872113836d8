"""Breaks a copy of the sources in one place at a time, and runs unit tests on it.

`python -m tests.mutations [NAME]` prints which test has caught the mistake, and exits with 1 if one
was not caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.mutations import Mutation, master, operator

REPOSITORY = Path(__file__).parents[1]
SOURCES = (
    *(
        "api",
        "shards",
        "kube",
        "operator",
        "master",
        "agent",
        "library",
        "localcluster",
        "cli",
        "tools",
        "bench",
        "proto",
    ),
    *("tests", "docs", "crds", "pyproject.toml"),
)
SELECTIONS = {
    # Random histories first, which are independent of the mistake; then the tests of single
    # functions.
    "operator": (
        (
            "tests/unit/operator/test_simulator.py",
            "-k",
            "any_history",
            "--histories=500",
            "--thorough",
        ),
        ("tests/unit/operator", "-k", "not simulator", "--thorough"),
    ),
    "master": (("tests/unit/master", "-k", "not soak", "--thorough"),),
    "shards": (("tests/unit/shards",),),
}
"""The tests to run, by the package of the mistake."""
OPTIONS = ("-x", "-q", "--tb=short", "-p", "no:cacheprovider")


def main() -> int:
    """Make every mistake whose name contains one of the arguments, or all."""
    wanted = sys.argv[1:]
    missed = 0
    for mutation in (*master.MUTATIONS, *operator.MUTATIONS):
        if wanted and not any(text in mutation.name for text in wanted):
            continue
        with tempfile.TemporaryDirectory(prefix="mutation-") as place:
            caught = _caught_by(mutation, Path(place))
        print(f"{mutation.name:<60} {caught or 'NOT CAUGHT'}", flush=True)
        missed += caught is None
    print(f"{missed} not caught" if missed else "all are caught")
    return int(missed > 0)


def _caught_by(mutation: Mutation, place: Path) -> str | None:
    """Return the test or seed that fails on the broken copy; None if all pass."""
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place / name)
    broken = place / mutation.path
    text = broken.read_text()
    if text.count(mutation.old) != 1:
        raise SystemExit(
            f"{mutation.name}: {mutation.path} does not contain {mutation.old!r} exactly once; "
            "update the mutation"
        )
    broken.write_text(text.replace(mutation.old, mutation.new))
    paths = [str(place / name) for name in SOURCES[:-1] if name != "tests"]
    for selection in SELECTIONS[mutation.path.partition("/")[0]]:
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
            raise SystemExit(
                f"{mutation.name}: the tests do not run:\n{run.stdout[-3000:]}{run.stderr[-3000:]}"
            )
        return found[1]
    return None


if __name__ == "__main__":
    sys.exit(main())
