"""Builds a master's configuration without ports and credentials, for tests of its parts."""

from __future__ import annotations

from elasticjob_master.config import Config


def master_config(
    job_name: str, job_uid: str, *, namespace: str = "n", framework: str = "custom"
) -> Config:
    return Config(
        job_name=job_name,
        job_uid=job_uid,
        namespace=namespace,
        pod_name="p",
        framework=framework,
        address="",
        grpc_port=0,
        http_port=0,
        token=None,
        tls=None,
    )
