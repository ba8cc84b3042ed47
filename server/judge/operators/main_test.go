package operators_test

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// asOperator makes the test's program be an operator.
const asOperator = "KEEPWATCH_JUDGED_OPERATOR"

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	if os.Getenv(asOperator) != "" {
		cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err == nil {
			cfg.QPS = -1
			if len(os.Args) == 3 {
				go convert(os.Args[1], os.Args[2])
			}
			err = start(variant{do: namedChild})(context.Background(), cfg)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	debug.SetGCPercent(200) // hundreds of servers begin, and garbage is most of what each has made then
	os.Exit(m.Run())
}
