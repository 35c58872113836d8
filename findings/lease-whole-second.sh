#!/usr/bin/env bash
# The Python client writes a time of a whole second in a form that the API server's type cannot read.
# An issue asks Kubernetes to accept it; the Python client's documentation does not mention it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

mkdir go && cd go
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func main() {
	var micro metav1.MicroTime // the type of a Lease's renewTime and an Event's eventTime
	var plain metav1.Time      // the type of creationTimestamp
	text := []byte(`"` + os.Args[1] + `"`)
	fmt.Print(json.Unmarshal(text, &micro) == nil, " ", json.Unmarshal(text, &plain) == nil)
}
GO
go mod init finding 2> log
{ go get k8s.io/apimachinery@v0.34.1 && go mod tidy && go build -o ../servers-type .; } >> log 2>&1 || { cat log; exit 1; }
cd ..
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubernetes==37.0.2
venv/bin/python - <<'PY'
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

from kubernetes import client


def accepted(microsecond):
    now = datetime(2026, 1, 1, microsecond=microsecond, tzinfo=UTC)
    lease = client.V1Lease(spec=client.V1LeaseSpec(renew_time=now))
    text = client.ApiClient().sanitize_for_serialization(lease)["spec"]["renewTime"]
    result = subprocess.run(["./servers-type", text], capture_output=True, text=True, check=True)
    return text, result.stdout


print(f"kubernetes {version('kubernetes')}, k8s.io/apimachinery v0.34.1")
print("Expected: a Lease with any renewTime of Python is valid; a time without a fraction is valid RFC 3339.")
results = [accepted(123456), accepted(0)]
for text, answer in results:
    print(f"Seen: {text}: MicroTime and Time accept it: {answer}")
print("A leader election that renews at datetime.now() fails once in a million renewals;")
print("one that cuts its times to seconds always fails. Only MicroTime demands exactly six digits.")
if [answer for _, answer in results] != ["true true", "false true"]:
    sys.exit("Changed: the server's type accepts a time without a fraction, or the client writes one.")
PY
