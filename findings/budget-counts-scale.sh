#!/usr/bin/env bash
# A PodDisruptionBudget with maxUnavailable: 1 over all pods of a custom job lets four of seven be evicted at once.
# The documentation says that a budget may be used with a custom resource that has a scale; not that only the scale is counted.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"time"

	autoscaling "k8s.io/api/autoscaling/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	scalefake "k8s.io/client-go/scale/fake"
	"k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/disruption"
)

// A training job of a custom kind: a launcher, four workers and two parameter servers. Its scale is that of the workers.
var roles = []string{"launcher", "worker", "worker", "worker", "worker", "ps", "ps"}

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	isController := true
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "TrainingJob", Name: "job", UID: "job", Controller: &isController}
	job := map[string]string{"job": "job"}
	objects := []runtime.Object{}
	for n, role := range roles {
		objects = append(objects, &core.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s-%d", role, n),
				Labels: map[string]string{"job": "job", "role": role}, OwnerReferences: []metav1.OwnerReference{owner}},
			Status: core.PodStatus{Phase: core.PodRunning, Conditions: []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}},
		})
	}
	one, six := intstr.FromInt32(1), intstr.FromInt32(6)
	budgets := map[string]policy.PodDisruptionBudgetSpec{
		"maxUnavailable: 1": {MaxUnavailable: &one},
		"minAvailable: 6":   {MinAvailable: &six},
	}
	for _, name := range []string{"maxUnavailable: 1", "minAvailable: 6"} {
		spec := budgets[name]
		spec.Selector = &metav1.LabelSelector{MatchLabels: job}
		budget := &policy.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget"}, Spec: spec}
		client := fake.NewSimpleClientset(append(objects, budget)...)
		scales := &scalefake.FakeScaleClient{}
		scales.AddReactor("get", "trainingjobs", func(testing.Action) (bool, runtime.Object, error) {
			return true, &autoscaling.Scale{ObjectMeta: metav1.ObjectMeta{UID: types.UID("job")}, Spec: autoscaling.ScaleSpec{Replicas: 4}}, nil
		})
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "TrainingJob"}, meta.RESTScopeNamespace)
		factory := informers.NewSharedInformerFactory(client, 0)
		controller := disruption.NewDisruptionController(ctx, factory.Core().V1().Pods(), factory.Policy().V1().PodDisruptionBudgets(),
			factory.Core().V1().ReplicationControllers(), factory.Apps().V1().ReplicaSets(), factory.Apps().V1().Deployments(),
			factory.Apps().V1().StatefulSets(), client, mapper, scales, client.Discovery())
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		go controller.Run(ctx, 1)
		for {
			found, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "budget", metav1.GetOptions{})
			if err != nil {
				panic(err)
			}
			if len(found.Status.Conditions) > 0 {
				fmt.Printf("%s|%d|%d|%s\n", name, found.Status.ExpectedPods, found.Status.DisruptionsAllowed, found.Status.Conditions[0].Reason)
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}
GO
{
  go mod init finding
  # Kubernetes takes its staging modules from its own tree; outside of it each has a release of its own.
  kubernetes=$(go mod download -json k8s.io/kubernetes@v1.37.2 | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  for module in $(sed -n 's|^\s*\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$kubernetes"); do
    go mod edit "-replace=$module=$module@v0.37.2"
  done
  go get k8s.io/kubernetes@v1.37.2
  go mod tidy
  go build -trimpath -gcflags=all=-dwarf=false -o finding .
} > log 2>&1 || { cat log; exit 1; }
timeout 60 ./finding > seen 2>> log || { cat log; exit 1; }
echo "k8s.io/kubernetes v1.37.2, the disruption controller: 7 ready pods of one job, whose scale is its 4 workers"
echo "Expected: with maxUnavailable: 1 one pod may be evicted, as with minAvailable: 6."
while IFS='|' read -r bound counted allowed _; do
  echo "Seen: $bound: $counted pods counted, $allowed may be evicted at once"
done < seen
echo "The controller subtracts 1 from the scale, 4, and compares the result with the 7 ready pods. A drain then takes the"
echo "launcher and three workers together. A selector of the scaled role, or minAvailable as a number, does what it says."
cat > recorded <<'TXT'
maxUnavailable: 1|4|4|SufficientPods
minAvailable: 6|7|1|SufficientPods
TXT
cmp -s seen recorded || { echo "Changed: the controller counts otherwise."; exit 1; }
