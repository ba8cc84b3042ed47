package follow

import (
	"flag"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/test/load"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seedFlag    = flag.Uint64("storm.seed", 1, "draw faults and changes as a run did that printed this seed; 0 draws anew")
	objectsFlag = flag.Int("storm.objects", 1200, "how many pods, and how many custom resources")
)

// Storms runs three storms on a server, one after the other: on pods, on custom resources,
// and on a selection that objects enter and leave. See -storm.objects.
func Storms(t *testing.T, server *peer.Server) {
	if err := load.DefineWidgets(t.Context(), server.Config()); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.CoreV1().Namespaces()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	for name, storm := range map[string]Storm{
		"pods": {Resource: load.Pods, Type: "pods", Make: load.SmallPod, Objects: *objectsFlag, Operations: *objectsFlag},
		"widgets": {Resource: load.Widgets, Type: "widgets", Make: load.Widget, Objects: *objectsFlag,
			Operations: *objectsFlag, HTTP1: true},
		"selected": {Resource: load.Widgets, Type: "wd", Make: load.Widget, Objects: 500, Operations: *objectsFlag * 4 / 5,
			Color: "red"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := namespaces.Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			storm.Namespace, storm.Seed = name, seed
			storm.Run(t, server)
		})
	}
}
