package published

import (
	"github.com/keepwatch/keepwatch/server/judge/operators"
)

// Bug is a published bug of an operator, and how it shows.
type Bug struct {
	Name     string
	Operator string // or the library that it is made with
	Issue    string // where it is published
	Sentence string
	// Affected has the bug, and Repaired does not.
	Affected, Repaired string
	source             source
	workload           string // a folder of testdata
	plan               string // that shows the bug; none: the runs without a fault
	verdict            operators.Verdict
}

// Bugs are those that are judged.
func Bugs() []Bug {
	dask := pypi{"dask-kubernetes", "dask_kubernetes.operator.controller",
		"dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds"}
	return []Bug{
		{
			Name: "dask-773", Operator: "dask-kubernetes", Issue: "https://github.com/dask/dask-kubernetes/issues/773",
			Sentence: "a new cluster has more workers than it should",
			Affected: "2023.7.0", Repaired: "2023.8.1", source: dask, workload: "dask-cluster",
			plan: "none", verdict: operators.Unstable,
		},
		{
			Name: "kopf-1106", Operator: "kopf", Issue: "https://github.com/nolar/kopf/issues/1106",
			Sentence: "the finalizer of somebody else is lost when the operator adds its own",
			Affected: "1.43.0", Repaired: "1.44.0", source: kopf("--all-namespaces"), workload: "widget",
			plan: "foreign-edit", verdict: operators.Overwritten,
		},
		{
			Name: "client-node-1933", Operator: "@kubernetes/client-node",
			Issue:    "https://github.com/kubernetes-client/javascript/issues/1933",
			Sentence: "an informer whose revision has expired asks again and again from it, and never lists",
			Affected: "1.0.0-rc6", Repaired: "1.0.0", source: clientNode{}, workload: "widget",
			plan: "unobserved", verdict: operators.Diverged,
		},
		{
			Name: "controller-runtime-3320", Operator: "controller-runtime",
			Issue:    "https://github.com/kubernetes-sigs/controller-runtime/issues/3320",
			Sentence: "an operator reads a cache without its own last write, and creates a second child",
			Affected: "v0.24.1", Repaired: "v0.25.2", source: controllerRuntime{}, workload: "widget",
			plan: "delayed", verdict: operators.Duplicated,
		},
		{
			Name: "controller-runtime-3590", Operator: "controller-runtime",
			Issue:    "https://github.com/kubernetes-sigs/controller-runtime/issues/3590",
			Sentence: "with consistent reads, the creation of a subresource that has no revision fails, and the operator stops there",
			Affected: "v0.25.0", Repaired: "v0.25.2", source: controllerRuntime{arguments: []string{"--token"}},
			workload: "widget-ready", plan: "none", verdict: operators.Diverged,
		},
	}
}
