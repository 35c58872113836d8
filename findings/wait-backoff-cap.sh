#!/usr/bin/env bash
# A Cap in a Backoff of apimachinery ends the retries early, instead of only limiting the pauses.
# A comment of the field says it; the name and the number of steps suggest otherwise.
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

	"k8s.io/apimachinery/pkg/util/wait"
)

func attempts(most time.Duration) (count int) {
	backoff := wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 10, Cap: most}
	_ = wait.ExponentialBackoff(backoff, func() (bool, error) {
		count++
		return false, nil
	})
	return count
}

func main() {
	uncapped, capped := attempts(0), attempts(4*time.Millisecond)
	fmt.Println("k8s.io/apimachinery v0.34.1: wait.Backoff{Duration: 1ms, Factor: 2, Steps: 10}, with and without Cap: 4ms")
	fmt.Println("Expected: ten attempts both times; the cap keeps the pauses at 4ms.")
	fmt.Printf("Seen: %d attempts without a cap, %d with it.\n", uncapped, capped)
	fmt.Println("A cap that should make a controller more patient makes it give up, with the usual timeout error.")
	if uncapped != 10 || capped != 3 {
		fmt.Println("Changed: the cap has another effect on the number of attempts.")
		os.Exit(1)
	}
}
GO
go mod init finding 2> log
{ go get k8s.io/apimachinery@v0.34.1 && go mod tidy; } >> log 2>&1 || { cat log; exit 1; }
go run .
