#!/usr/bin/env bash
# After a resume from an older checkpoint, MLflow shows the value from before the failure as the latest.
# The documentation of RunData.metrics says that it has the value with the latest timestamp.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check mlflow-skinny==3.17.2
export MLFLOW_ALLOW_FILE_STORE=true MLFLOW_DISABLE_TELEMETRY=true
venv/bin/python - 2> log <<'PY' || { tail -5 log; exit 1; }
import sys
from importlib.metadata import version
from pathlib import Path

import mlflow

mlflow.set_tracking_uri(Path("runs").absolute().as_uri())
mlflow.set_experiment("training")
with mlflow.start_run() as run:
    for step in range(96, 100):
        mlflow.log_metric("loss", 0.5, step=step)
with mlflow.start_run(run_id=run.info.run_id):  # continues from the checkpoint of step 90
    for step in range(91, 95):
        mlflow.log_metric("loss", 7.0, step=step)
latest = mlflow.get_run(run.info.run_id).data.metrics["loss"]
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print(f"mlflow-skinny {version('mlflow-skinny')}: steps 96 to 99 with loss 0.5, then a resume with steps 91 to 94 and loss 7.0")
print("Expected: run.data.metrics has the value that was logged last, 7.0.")
print(f"Seen: it has {latest}; the history has {[(point.step, point.value) for point in history]}")
print("A monitor that stops diverging runs reads the run before the failure until the resumed one has passed it.")
if latest != 0.5 or history[-1].value != 7.0:
    sys.exit("Changed: the latest metric is that of the last call.")
PY
