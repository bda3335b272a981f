// Verdicts tells what Flux and Argo CD make of objects, by their own code: an array of objects in, an array of verdicts out
// (JSON).
//
//	verdicts manifests/gitops < OBJECTS
//
// The health checks for Argo CD and the healthCheckExprs for Flux are those in the directory.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "verdicts:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("usage: verdicts manifests/gitops < OBJECTS")
	}
	judge, err := newJudge(arguments[0])
	if err != nil {
		return err
	}
	var objects []map[string]any
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		return fmt.Errorf("objects on standard input: %w", err)
	}
	verdicts := make([]*verdict, 0, len(objects))
	for _, object := range objects {
		verdict, err := judge.verdict(object)
		if err != nil {
			return err
		}
		verdicts = append(verdicts, verdict)
	}
	return json.NewEncoder(os.Stdout).Encode(verdicts)
}
