"""The fields of dl-operator's MXJob and TFJob. Pure.

dl-operator's CRDs have no schema, so no list of its fields checks this table.
"""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Table, changed, kept

REPLICA_SPECS: Table = (
    changed("spec[].replicaType", "replicaSpecs.<role>", "in lower case"),
    changed(
        "spec[].replicas",
        "replicaSpecs.<role>.replicas, replicaSpecs.<role>.minReplicas",
        "`minReplicas` is invented: the size is fixed there",
    ),
    kept("spec[].template", "replicaSpecs.<role>.template"),
)
