"""Helm, Kueue, Prometheus and OpenTelemetry's collector, built like the embedded cluster.

Helm renders deploy/. Tests run Kueue, Prometheus with the alerts and dashboards, and the collector.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from elasticjob_localcluster.controlplane.binaries import find_programs
from elasticjob_localcluster.controlplane.builds import find_go, go_environment
from elasticjob_localcluster.controlplane.programs import Program
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir

_MODULES = Path(__file__).parent / "modules"
HELM = Program(
    "helm", _MODULES / "helm", "helm.sh/helm/v3/cmd/helm", ("version", "--short"), r"^v[34]\."
)


def _kueue(folder: str, version: str) -> Program:
    package = "sigs.k8s.io/kueue/cmd/kueue"
    return Program("kueue", _MODULES / folder, package, ("--version",), re.escape(version))


_KUEUES = {"": _kueue("kueue", "v0.19.2"), "0.15": _kueue("kueue-0.15", "v0.15.2")}
PROMTOOL = Program(
    "promtool",
    _MODULES / "prometheus",
    "github.com/prometheus/prometheus/cmd/promtool",
    ("--version",),
    r"promtool, version 3\.",
    tags="remove_all_sd",  # without the clients of all clouds
)
PROMETHEUS = Program(
    "prometheus",
    _MODULES / "prometheus",
    "github.com/prometheus/prometheus/cmd/prometheus",
    ("--version",),
    r"prometheus, version 3\.",
    tags="remove_all_sd",
)

COLLECTOR = Program(
    "otelcol", _MODULES / "collector", ".", ("--version",), r"otelcol version 0\.165\."
)


def find_helm(environ: Mapping[str, str]) -> Path:
    """Return the path of Helm; build it if it is missing."""
    return find_programs(cache_dir(environ), environ, ProgressDisplay(), (HELM,))[HELM.name]


def find_kueue(environ: Mapping[str, str]) -> Path:
    """Return the path of Kueue's manager; build it if it is missing."""
    kueue = _chosen_kueue(environ)
    return find_programs(cache_dir(environ), environ, ProgressDisplay(), (kueue,))[kueue.name]


def _chosen_kueue(environ: Mapping[str, str]) -> Program:
    """Return today's Kueue, or that of the variable KUEUE: `0.15` is the oldest that fits."""
    return _KUEUES[environ.get("KUEUE", "")]


def find_prometheus(environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the paths of Prometheus and promtool by name; build them if they are missing."""
    programs = (PROMETHEUS, PROMTOOL)
    return find_programs(cache_dir(environ), environ, ProgressDisplay(), programs)


def find_collector(environ: Mapping[str, str]) -> Path:
    """Return the path of OpenTelemetry's collector; build it if it is missing."""
    return find_programs(cache_dir(environ), environ, ProgressDisplay(), (COLLECTOR,))["otelcol"]


def kueue_definitions(environ: Mapping[str, str]) -> Path:
    """Return the directory of Kueue's CustomResourceDefinitions, in its sources.

    Go downloads and checks the sources if they are missing.
    """
    cache = cache_dir(environ)
    go = find_go(cache, environ, ProgressDisplay())
    answer = subprocess.run(
        [str(go), "mod", "download", "-json", "sigs.k8s.io/kueue"],
        capture_output=True,
        text=True,
        timeout=300,
        env=go_environment(cache, environ),
        cwd=_chosen_kueue(environ).module,
    )
    if answer.returncode != 0:
        raise LocalClusterError(
            "could not download Kueue's sources", detail=last_lines(answer.stderr, 5)
        )
    return Path(json.loads(answer.stdout)["Dir"]) / "config" / "components" / "crd" / "bases"
