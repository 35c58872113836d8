"""Trains with TensorFlow in the way of a TFJob.

The cluster is static, the variables are on servers, and each worker has a graph.

Learns y = 3 x. Runs as `python between_graph_training.py FOLDER STEPS`; TF_CONFIG says which
process this is. The chief, or the first worker if there is no chief, saves when it is asked to
stop; the first worker also when the others have ended their last step. A file `finish` in the
folder ends the training, too. Each worker appends its steps in its world to `account`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import elasticjob
import tensorflow.compat.v1 as tf  # type: ignore[import-untyped]

TRUTH = 3.0
RATE = 0.05
STEP_SECONDS = 0.01
OTHERS_END_SECONDS = 10.0
READY_SECONDS = 300.0


def main() -> None:
    """Serve variables, train until all workers have done the steps, or watch checkpoints."""
    folder = Path(sys.argv[1])
    steps = int(sys.argv[2])
    config = json.loads(os.environ["TF_CONFIG"])
    if config["task"]["type"] == "evaluator":
        evaluate(folder)
        return
    cluster = tf.train.ClusterSpec(config["cluster"])
    task = config["task"]
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    if task["type"] == "ps":
        server.join()
    train(folder, steps, server.target, config)


class Stop(tf.train.SessionRunHook):  # type: ignore[misc]
    """Ends the session when this process is asked to stop; the chief's saves at its end."""

    def after_run(self, context: Any, values: Any) -> None:
        """Check after each step."""
        if elasticjob.should_stop():
            context.request_stop()


def train(folder: Path, steps: int, target: str, config: dict[str, Any]) -> None:
    """Do steps on the servers' variables, together with the other workers."""
    cluster = config["cluster"]
    task = config["task"]
    store = elasticjob.KeyValue()
    is_chief = task["type"] == "chief" or ("chief" not in cluster and task["index"] == 0)
    workers = len(cluster["worker"])
    tf.disable_eager_execution()
    device = f"/job:{task['type']}/task:{task['index']}"
    with tf.device(
        tf.train.replica_device_setter(worker_device=device, cluster=tf.train.ClusterSpec(cluster))
    ):
        step = tf.train.get_or_create_global_step()
        weight = tf.get_variable("weight", initializer=0.0)
        x = tf.random.uniform([16])
        loss = tf.reduce_mean((weight - TRUTH) ** 2 * x)
        optimize = tf.train.GradientDescentOptimizer(RATE).minimize(loss)
        with tf.control_dependencies([optimize]):
            count = tf.assign_add(step, 1, use_locking=True)
    options = {
        "is_chief": is_chief,
        "checkpoint_dir": str(folder),
        "hooks": [tf.train.StopAtStepHook(last_step=steps), Stop()],
        "log_step_count_steps": None,
        # Otherwise it waits for the other workers, which may have ended.
        "config": tf.ConfigProto(device_filters=["/job:ps", device]),
    }
    if not is_chief:
        # MonitoredTrainingSession itself checks every 30 s only.
        store.wait("ready", timeout=READY_SECONDS)
    with tf.train.MonitoredTrainingSession(master=target, **options) as session:
        first = done = int(session.run_step_fn(lambda step_context: step_context.session.run(step)))
        own = 0
        value = 0.0
        store.set("ready", b"")
        print(f"round {elasticjob.world().round}: {workers} workers from step {first}", flush=True)
        while not (session.should_stop() or Path(folder, "finish").exists()):
            done, value = session.run([count, weight])
            own += 1
            if own == 1:
                Path(folder, f"{workers}-workers-{task['type']}-{task['index']}-trains").touch()
            elasticjob.report_step(int(done), metrics={"workers": float(workers)})
            time.sleep(STEP_SECONDS)
        others_have_ended(store, config, is_chief=is_chief)
        # The chief's session saves the steps of all workers at its end.
    saved = int(tf.train.load_variable(str(folder), "global_step")) if is_chief else None
    account(
        folder,
        task=task["type"],
        index=task["index"],
        workers=workers,
        first=first,
        own=own,
        saved=saved,
    )
    if elasticjob.should_stop():
        elasticjob.confirm_stop()
    else:
        text = f"{workers} workers, {done} steps, weight {value:.1f}"
        Path(folder, f"ended-{task['index']}").write_text(text)


def others_have_ended(
    store: elasticjob.KeyValue, config: dict[str, Any], *, is_chief: bool
) -> None:
    """Announce that this worker has ended its last step.

    The first of the workers waits until all have.
    """
    task = config["task"]
    workers = config["cluster"]["worker"]
    if task["type"] == "worker" and not is_chief:
        store.set(f"ended-{task['index']}", b"")
    elif task["type"] == "worker" and len(workers) > 1:
        try:
            store.wait(
                *(f"ended-{index}" for index in range(1, len(workers))), timeout=OTHERS_END_SECONDS
            )
        except (TimeoutError, elasticjob.AgentError) as error:
            print(f"a worker does not end: {error}", flush=True)


def account(folder: Path, **done: Any) -> None:
    """Write down the steps of this process in its world."""
    line = json.dumps({"round": elasticjob.world().round, **done}) + "\n"
    with Path(folder, "account").open("a") as file:
        file.write(line)


def evaluate(folder: Path) -> None:
    """Write down the step and the weight of each checkpoint, until asked to stop."""
    seen = None
    while not elasticjob.should_stop():
        newest = tf.train.latest_checkpoint(str(folder))
        if newest is not None and newest != seen:
            reader = tf.train.load_checkpoint(newest)
            seen = newest
            text = (
                f"step {reader.get_tensor('global_step')}, weight {reader.get_tensor('weight'):.1f}"
            )
            Path(folder, "evaluated").write_text(text)
        time.sleep(0.2)
    elasticjob.confirm_stop()


if __name__ == "__main__":
    main()
