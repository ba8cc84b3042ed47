// Package controlplane runs a whole control plane on keepwatch-apiserver: kube-controller-manager,
// kube-scheduler and KWOK create, update, move and delete pods, while the API server is killed once. At
// the end the cluster must have exactly the objects that the story leads to, and an API server with
// Kubernetes' own watch cache must read the same from etcd.
package controlplane

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	nodesFlag       = flag.Int("story.nodes", 40, "number of nodes")
	deploymentsFlag = flag.Int("story.deployments", 60, "number of Deployments")
	podsFlag        = flag.Int("story.pods", 1000, "number of their pods")
	readsFlag       = flag.String("story.reads", readsKeepwatch,
		"values of --reads to run the story with, one after the other, separated by commas")
)

const readsKeepwatch = "keepwatch"

func TestMain(m *testing.M) { peer.Main(m) }

// TestStory runs the story once for each value of -story.reads, and prints its figures side by side.
func TestStory(t *testing.T) {
	size := scale{nodes: *nodesFlag, deployments: *deploymentsFlag, pods: *podsFlag}
	var all []figures
	for reads := range strings.SplitSeq(*readsFlag, ",") {
		t.Run(reads, func(t *testing.T) {
			all = append(all, runStory(t, reads, size))
		})
	}
	printTable(os.Stdout, size, all)
}
