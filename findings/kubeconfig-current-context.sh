#!/usr/bin/env bash
# With several files in KUBECONFIG, kubectl and the Python clients act on different clusters.
# Kubernetes documents the rule for kubectl; a pull request to the Python client is open.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

for name in training staging; do
    cat > "$name" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: $name, cluster: {server: "http://$name.example"}}]
contexts: [{name: $name, context: {cluster: $name, user: $name}}]
users: [{name: $name, user: {token: none}}]
current-context: $name
YAML
done
export KUBECONFIG=$folder/training:$folder/staging

mkdir go && cd go
cat > main.go <<'GO'
package main

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config, err := clientcmd.NewDefaultClientConfigLoadingRules().Load()
	if err != nil {
		panic(err)
	}
	fmt.Print(config.CurrentContext)
}
GO
go mod init finding 2> log
{ go get k8s.io/client-go@v0.34.1 && go mod tidy && go build -o ../kubectls-loader .; } >> log 2>&1 || { cat log; exit 1; }
cd ..
python3 -m venv venv
venv/bin/pip install -q --no-compile --disable-pip-version-check kubernetes==37.0.2 kubernetes_asyncio==36.1.0
kubectl=$(./kubectls-loader) venv/bin/python - <<'PY'
import asyncio
import os
import sys
from importlib.metadata import version

import kubernetes
import kubernetes_asyncio

first = kubernetes.client.Configuration()
kubernetes.config.load_kube_config(client_configuration=first)
second = kubernetes_asyncio.client.Configuration()
asyncio.run(kubernetes_asyncio.config.load_kube_config(client_configuration=second))
hosts = [first.host, second.host]
print(f"kubernetes {version('kubernetes')}, kubernetes_asyncio {version('kubernetes_asyncio')},")
print("client-go v0.34.1 (the loader in kubectl); KUBECONFIG=training:staging, each with a current-context")
print("Expected: every client uses the current context of the first file, as kubectl does.")
print(f"Seen: kubectl's loader uses {os.environ['kubectl']}; the Python clients use {hosts[0]} and {hosts[1]}.")
print("So `kubectl get pods` and a Python program beside it look at two clusters.")
if os.environ["kubectl"] != "training" or hosts != ["http://staging.example"] * 2:
    sys.exit("Changed: the Python clients no longer take the last file's context, or kubectl the first's.")
PY
