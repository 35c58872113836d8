"""Submits and handles jobs from Python: `from elasticjob.client import Client`.

It needs more packages than a worker: `pip install 'elasticjob[client]'`.
"""

try:
    from elasticjob_client.aio import AsyncClient
    from elasticjob_client.aio_job import AsyncJob
    from elasticjob_client.client import Client, Dashboard, Job
    from elasticjob_client.errors import (
        ClientError,
        Invalid,
        JobEnded,
        MasterUnavailable,
        MasterUnreachable,
        NoSuchObject,
        NotInTime,
        WrongArgument,
    )
    from elasticjob_client.job_template import JobTemplate
    from elasticjob_client.logs import LogLine
except ModuleNotFoundError as error:
    raise ImportError(
        f"elasticjob.client needs {error.name}, which is not installed: "
        "pip install 'elasticjob[client]'"
    ) from error

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "ClientError",
    "Dashboard",
    "Invalid",
    "Job",
    "JobEnded",
    "JobTemplate",
    "LogLine",
    "MasterUnavailable",
    "MasterUnreachable",
    "NoSuchObject",
    "NotInTime",
    "WrongArgument",
]
