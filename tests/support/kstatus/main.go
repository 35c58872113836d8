// Prints what kstatus says of the object on stdin.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	body, err := io.ReadAll(os.Stdin)
	check(err)
	object := &unstructured.Unstructured{}
	check(object.UnmarshalJSON(body))
	result, err := status.Compute(object)
	check(err)
	fmt.Println(result.Status)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
