package operators_test

import (
	"context"
	"fmt"
	"log"

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
