#!/usr/bin/env bash
# cloudpickle writes other bytes in each process as soon as a function uses a class of its script.
# An issue of the project describes it; its documentation does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check cloudpickle==3.1.3
cat > train.py <<'PY'
from dataclasses import dataclass
from hashlib import sha256

import cloudpickle


@dataclass
class Config:
    rate: float = 0.1


def plain(step):
    return step + 1


def configured(step):
    return Config(rate=step)


print(*(sha256(cloudpickle.dumps(function)).hexdigest()[:12] for function in (plain, configured)))
PY
for _ in 1 2; do PYTHONHASHSEED=0 venv/bin/python train.py; done > hashes
read -r plain configured < hashes
read -r plain_again configured_again < <(tail -1 hashes)
echo "cloudpickle 3.1.3: the same file pickles two functions, in two processes with equal hash seeds"
echo "Expected: unchanged code has unchanged bytes, as the first function suggests."
echo "Seen: a plain function: $plain, then $plain_again"
echo "Seen: a function that uses a dataclass of the file: $configured, then $configured_again"
echo "A name or an annotation made from this hash changes with every submission: an unchanged job is restarted,"
echo "and a cache of results never hits. Hash the source instead."
if [ "$plain" != "$plain_again" ] || [ "$configured" = "$configured_again" ]; then
    echo "Changed: cloudpickle gives classes the same bytes in each process, or functions other ones."
    exit 1
fi
