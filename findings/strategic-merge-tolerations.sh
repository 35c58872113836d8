#!/usr/bin/env bash
# A strategic merge patch merges a pod's env and volumes by name, but replaces its tolerations;
# and a volume of another kind gets both kinds. The API reference marks merged lists by a "patch strategy" only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func patched(pod, patch string) string {
	result, err := strategicpatch.StrategicMergePatch([]byte(pod), []byte(patch), corev1.PodSpec{})
	if err != nil {
		panic(err)
	}
	return string(result)
}

func main() {
	tolerations := patched(`{"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"}]}`,
		`{"tolerations":[{"key":"spot","operator":"Exists"}]}`)
	volumes := patched(`{"volumes":[{"name":"data","emptyDir":{}},{"name":"code","configMap":{"name":"code"}}]}`,
		`{"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data"}}]}`)
	fmt.Println("k8s.io/apimachinery v0.34.1, k8s.io/api v0.34.1: strategic merge patches of a PodSpec")
	fmt.Println("Expected: a toleration is added, as an environment variable would be; a volume of the same name is replaced.")
	fmt.Println("Seen:", tolerations)
	fmt.Println("Seen:", volumes)
	fmt.Println("The overlay that lets training pods use spot nodes takes the GPU nodes from them; and the API server refuses")
	fmt.Println("the pod that exchanges its emptyDir for a claim, unless the patch also has emptyDir: null.")
	if tolerations != `{"tolerations":[{"key":"spot","operator":"Exists"}]}` ||
		volumes != `{"volumes":[{"emptyDir":{},"name":"data","persistentVolumeClaim":{"claimName":"data"}},{"configMap":{"name":"code"},"name":"code"}]}` {
		fmt.Println("Changed: tolerations are merged, or volumes of another kind are replaced.")
		os.Exit(1)
	}
}
GO
go mod init finding 2> log
{ go get k8s.io/api@v0.34.1 k8s.io/apimachinery@v0.34.1 && go mod tidy; } >> log 2>&1 || { cat log; exit 1; }
go run .
