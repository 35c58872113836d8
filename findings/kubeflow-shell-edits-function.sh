#!/usr/bin/env bash
# The Kubeflow SDK sends a training function to its pod in a shell's here-document that is not quoted.
# The shell expands each $ and removes backslashes: the pod trains with other strings. The documentation does not mention it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubeflow==0.5.0
cat > training.py <<'PY'
def train():
    prompt = "A pen costs $5, and $price is more. Answer in \\boxed{}."
    print(repr(prompt))
PY
venv/bin/python - <<'PY'
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from kubeflow.trainer import CustomTrainer, Runtime, RuntimeKind, RuntimeTrainer, TrainerType
from kubeflow.trainer.backends.kubernetes.utils import get_trainer_cr_from_custom_trainer
from kubeflow.trainer.constants.constants import DEFAULT_COMMAND

sys.path.insert(0, ".")
from training import train


def output(*command, folder="."):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


trainer = RuntimeTrainer(TrainerType.CUSTOM_TRAINER, framework="plainml", image="python")
trainer.set_command(DEFAULT_COMMAND)
command = get_trainer_cr_from_custom_trainer(Runtime("plain", trainer, RuntimeKind.TRAINING_RUNTIME), CustomTrainer(train)).command
Path("pod", "bin").mkdir(parents=True)
Path("pod", "bin", "python").symlink_to(sys.executable)
here = output(sys.executable, "-c", "from training import train; train()")
pod = output("env", "-i", f"PATH={Path('pod/bin').absolute()}:/usr/bin:/bin", *command, folder="pod")
print(f"kubeflow {version('kubeflow')}: CustomTrainer(train) of a function that prints a prompt; the TrainJob's command is run as in a pod")
print("Expected: the pod runs the function that was given.")
print(f"Seen here:       {here}")
print(f"Seen in the pod: {pod}")
print("Prompts, patterns and templates change without an error; only the TrainJob's own command shows the function as it was.")
if here != repr("A pen costs $5, and $price is more. Answer in \\boxed{}.") or pod != repr("A pen costs , and  is more. Answer in \boxed{}."):
    sys.exit("Changed: the function's text reaches the pod as it is, or is changed in another way.")
PY
