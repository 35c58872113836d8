"""A TensorFlow program of the kind that TFJobs were made for: static cluster, variables on servers, a graph per worker.

Learns y = 3 x. Runs as `python between_graph_training.py FOLDER STEPS`; TF_CONFIG says which process this is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import tensorflow.compat.v1 as tf  # type: ignore[import-untyped]

TRUTH, RATE = 3.0, 0.05


def main() -> None:
    """Serve variables, or train until all workers together have done the steps."""
    folder, steps = sys.argv[1], int(sys.argv[2])
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    tf.disable_eager_execution()
    device = f"/job:worker/task:{task['index']}"
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", initializer=0.0)
        x = tf.random.uniform([16])
        loss = tf.reduce_mean((weight - TRUTH) ** 2 * x)
        train = tf.train.GradientDescentOptimizer(RATE).minimize(loss, global_step=step)
    options = {
        "is_chief": task["index"] == 0,
        "checkpoint_dir": folder,
        "hooks": [tf.train.StopAtStepHook(last_step=steps)],
        # Else it waits for the other workers, which may have ended.
        "config": tf.ConfigProto(device_filters=["/job:ps", device]),
    }
    with tf.train.MonitoredTrainingSession(master=server.target, **options) as session:
        done, value = 0, 0.0
        while not session.should_stop():
            _, done, value = session.run([train, step, weight])
    workers = len(config["cluster"]["worker"])
    Path(folder, f"ended-{task['index']}").write_text(f"{workers} workers, {done} steps, weight {value:.1f}")


if __name__ == "__main__":
    main()
