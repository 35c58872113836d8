#!/usr/bin/env bash
# Whether 3.0 is a valid integer of a custom resource depends on whether any validation rule reads the field.
# The documentation of CRDs and of their rules says that an integer becomes a CEL int; not that 3.0 is then refused.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Returns what the API server's validation of a custom resource says about the object.
func check(rule, object string) string {
	text := `{"type": "object", "properties": {"replicas": {"type": "integer", "minimum": 1, "maximum": 9}}}`
	var external v1.JSONSchemaProps
	must(json.Unmarshal([]byte(text), &external))
	if rule != "" {
		external.XValidations = v1.ValidationRules{{Rule: rule, Message: "at most four"}}
	}
	var internal apiextensions.JSONSchemaProps
	must(v1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil))
	structural, err := schema.NewStructural(&internal)
	must(err)
	var decoded map[string]interface{}
	must(utiljson.Unmarshal([]byte(object), &decoded)) // the decoder of the API server
	byTypes, _, err := validation.NewSchemaValidator(&internal)
	must(err)
	found := validation.ValidateCustomResource(nil, decoded, byTypes)
	if rule != "" {
		errors, _ := cel.NewValidator(structural, false, math.MaxInt64).
			Validate(context.Background(), nil, structural, decoded, nil, math.MaxInt64)
		found = append(found, errors...)
	}
	if len(found) == 0 {
		stored, err := json.Marshal(decoded)
		must(err)
		return "accepted, stored as " + string(stored)
	}
	return found[0].Detail
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	for _, object := range []string{`{"replicas": 3}`, `{"replicas": 3.0}`} {
		fmt.Printf("%s|%s|%s\n", object, check("", object), check("!has(self.replicas) || self.replicas <= 4", object))
	}
}
GO
go mod init finding 2> log
{ go get k8s.io/apiextensions-apiserver@v0.37.2 && go mod tidy && go build -trimpath -gcflags=all=-dwarf=false -o finding .; } >> log 2>&1 || { cat log; exit 1; }
./finding > seen
echo "k8s.io/apiextensions-apiserver v0.37.2: the validation of custom resources of the API server"
echo "Expected: {\"replicas\": 3.0}, as 6 / 2 of Python writes it, is valid for type: integer, or is not."
while IFS='|' read -r object without with; do
  echo "Seen: $object: without a rule $without; with one that reads replicas: $with"
done < seen
echo "A definition that gets a bound as a rule refuses what it accepted before; the error shows the rule's message,"
echo "here 'at most four' for three, and not the field. What was stored before is not affected: it is stored as 3."
cat > recorded <<'TXT'
{"replicas": 3}|accepted, stored as {"replicas":3}|accepted, stored as {"replicas":3}
{"replicas": 3.0}|accepted, stored as {"replicas":3}|invalid data, expected int, got float64 evaluating rule: at most four
TXT
cmp -s seen recorded || { echo "Changed: 3.0 is judged otherwise with or without a rule."; exit 1; }
