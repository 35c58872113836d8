"""The process that writes to a tracker, beside the process with rank 0.

A tracker's library is imported here and not in the training process: its imports take seconds, it
has exit handlers that wait for a network, and it may crash. Each line of standard input is a list
of reports, and gets one line as an answer; an empty list ends the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from elasticjob_api import names

from elasticjob._trackers import TRACKERS, Failure, Job, Report, Run, TrackerUnusable


def main() -> None:
    """Write what standard input says."""
    # SIGTERM asks the training process to stop, which ends this one when all is written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    writer = _Writer()
    for line in sys.stdin:
        reports = [Report(*fields) for fields in json.loads(line)]
        print(json.dumps(writer.write(reports)), file=answers, flush=True)
        if not reports:
            return


class _Writer:
    """Opens the run of each world and writes to it."""

    def __init__(self) -> None:
        read = os.environ.get
        self._open = TRACKERS[os.environ[names.ENV_TRACKER]]
        self._job = Job(read(names.ENV_JOB_NAME) or "job", os.environ[names.ENV_JOB_UID])
        self._run: Run | None = None
        self._round = -1

    def write(self, reports: list[Report]) -> dict[str, str]:
        """Write reports of one world; return the error. After one the run is opened again."""
        failure = Failure.OPEN
        try:
            if self._run is not None and (not reports or reports[0].round != self._round):
                self._run.close()
                self._run = None
            if reports:
                if self._run is None:
                    self._run = self._open(self._job, reports[0])
                    self._round = reports[0].round
                failure = Failure.WRITE
                self._run.write(reports)
        except (ImportError, TrackerUnusable) as error:
            return {"failure": Failure.UNUSABLE, "error": str(error)}
        except Exception as error:  # noqa: BLE001 (a tracker's library may raise anything)
            self._run = None
            reason = str(error).strip().partition("\n")[0]
            return {"failure": failure, "error": f"{type(error).__name__}: {reason[:300]}"}
        return {}


if __name__ == "__main__":
    main()
