package audit_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch/server/judge/audit"
)

// Two servers are compared at one revision.
func ExampleServers() {
	report, err := audit.Servers(context.Background(), api, twin, audit.Options{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range report.Differences {
		fmt.Println(d.Key(), d.Kind, d.Fields)
	}
	fmt.Println("equal:", report.Equal())
	// Output: equal: true
}
