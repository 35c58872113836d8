"""The options of torchrun. Pure."""

from __future__ import annotations

from elasticjob_cli.convert.tables.rows import Table, changed, kept

_WORLD = "left out: the agent sets torchrun's world"

TORCHRUN: Table = (
    changed(
        "--nnodes VALUE",
        "replicaSpecs.worker.minReplicas, replicaSpecs.worker.maxReplicas",
        "left out: the agent sets it. `1:4` become bounds, and of `3:$NODE_NUM` the 3",
    ),
    changed(
        "--nproc-per-node VALUE",
        "replicaSpecs.worker.slotsPerReplica",
        "a number; else there is a process for each GPU, or one",
    ),
    changed(
        "--max-restarts VALUE",
        "replicaSpecs.worker.processRestartLimit",
        "in the life of a pod; all processes of the world restart together",
    ),
    *(
        changed(f"--{name}", "", _WORLD)
        for name in (
            "master-addr VALUE", "master-port VALUE", "node-rank VALUE", "rdzv-backend VALUE",
            "rdzv-conf VALUE", "rdzv-endpoint VALUE", "rdzv-id VALUE", "standalone",
        )
    ),
    *(
        kept(f"--{name}", "the same option")
        for name in (
            "duplicate-stderr-filters VALUE", "duplicate-stdout-filters VALUE",
            "event-log-handler VALUE", "local-addr VALUE", "local-ranks-filter VALUE",
            "log-dir VALUE", "logs-specs VALUE", "module", "monitor-interval VALUE", "no-python",
            "numa-binding VALUE", "redirects VALUE", "role VALUE", "run-path",
            "shutdown-timeout VALUE", "signals-to-handle VALUE", "start-method VALUE", "tee VALUE",
            "use-env", "virtual-local-rank",
        )
    ),
)  # fmt: skip
