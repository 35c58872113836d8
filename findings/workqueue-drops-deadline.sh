#!/usr/bin/env bash
# A delaying work queue of client-go keeps one time per key: an AddAfter with a shorter delay cancels the earlier one for good.
# Add does not cancel it. Issues describe both; the comment of AddAfter says that it adds an item after a time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// deliveries schedules the key of a job for its deadline, lets something else schedule it too, and counts what comes.
func deliveries(schedule func(workqueue.TypedDelayingInterface[string])) (count int) {
	queue := workqueue.NewTypedDelayingQueue[string]()
	queue.AddAfter("job", 2*time.Second) // its deadline
	schedule(queue)
	go func() {
		time.Sleep(5 * time.Second)
		queue.ShutDown()
	}()
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return count
		}
		count++
		queue.Done(key)
	}
}

func main() {
	retry := deliveries(func(queue workqueue.TypedDelayingInterface[string]) { queue.AddAfter("job", 500*time.Millisecond) })
	event := deliveries(func(queue workqueue.TypedDelayingInterface[string]) { queue.Add("job") })
	fmt.Println("k8s.io/client-go v0.37.2: AddAfter(job, 2s) for a deadline; then AddAfter(job, 500ms), or Add(job), of a retry or an event")
	fmt.Println("Expected: two deliveries, now and at the deadline, in both cases.")
	fmt.Printf("Seen: %d delivery with AddAfter, %d with Add.\n", retry, event)
	fmt.Println("A controller that schedules its deadline once misses it after the first retry. Compute the next time in every turn.")
	if retry != 1 || event != 2 {
		fmt.Println("Changed: a shorter delay leaves the longer one, or Add cancels it, too.")
		os.Exit(1)
	}
}
GO
go mod init finding 2> log
{ go get k8s.io/client-go@v0.37.2 && go mod tidy; } >> log 2>&1 || { cat log; exit 1; }
go run .
