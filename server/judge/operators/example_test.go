package operators_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// An operator is judged in one call.
func ExampleRun() {
	report, err := operators.Run(context.Background(), operators.Options{
		Operator: operators.Operator{Command: []string{"./bin/manager", "--leader-elect=false"}},
		CRDs:     []string{"config/crd"},
		RBAC:     []string{"config/rbac"},
		Workload: "testdata/judge",
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range report.Unexpected() {
		fmt.Println(finding.Verdict, finding.Facts, report.Repeat(finding))
	}
}

// A test judges an operator that is a function: one that runs a manager, until its context is done.
func ExampleReport_Err() {
	runManager := func(context.Context, *rest.Config) error { return nil }

	_ = func(t *testing.T) { // TestOperatorWithFaults
		report, err := operators.Run(t.Context(), operators.Options{
			Operator: operators.Operator{Start: runManager},
			CRDs:     []string{"../config/crd"},
			Workload: "testdata/judge",
			Quiet:    100 * time.Millisecond, // longer than its retries are apart
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Err(); err != nil {
			_ = report.PrintTable(t.Output())
			t.Error(err)
		}
	}
}
