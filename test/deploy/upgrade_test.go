package deploy

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
)

// lookups answers the function lookup of templates from the StatefulSets of a cluster.
type lookups []runtime.Object

func (l lookups) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return fake.NewSimpleDynamicClient(scheme.Scheme, l...).Resource(appsv1.SchemeGroupVersion.WithResource(
		"statefulsets")), true, nil
}

// What Kubernetes does not change of a StatefulSet is refused before Helm writes the Secret with the new file, with
// what to do first. Another text of the same size is no change.
func TestSyncUpgrade(t *testing.T) {
	postgres := values{"config": values{"to": "postgres://sync@db/kubernetes"}}
	size := func(text string) values {
		return values{"storage": values{"size": text}, "config": values{"maxSize": "1Gi"}}
	}
	const orphan = "kubectl -n keepwatch delete statefulset keepwatch-sync --cascade=orphan"
	for name, c := range map[string]struct {
		before, after values
		want          []string // in the error; none if it is upgraded
	}{
		"nothing":        {values{}, values{}, nil},
		"another file":   {values{}, values{"config": values{"to": "sqlite:/data/other.db"}}, nil},
		"the same size":  {size("1536Gi"), size("1.5Ti"), nil},
		"in bytes":       {size("2Gi"), size("2147483648"), nil},
		"decimal":        {size("2G"), size("2000M"), nil},
		"a fraction":     {size("1.1Ti"), size("1.1Ti"), nil},
		"millionths":     {size("1.23456Gi"), size("1.23456Gi"), nil},
		"a larger one":   {size("2.3Gi"), size("2.4Gi"), []string{"2.4Gi", orphan}},
		"larger":         {values{}, size("20Gi"), []string{"10Gi", "patch pvc data-keepwatch-sync-0", `"20Gi"`, orphan}},
		"another unit":   {size("20G"), size("20Gi"), []string{"20G,", "20Gi", orphan}},
		"class":          {values{}, values{"storage": values{"className": "fast"}}, []string{`"fast"`, "another release"}},
		"to Postgres":    {values{}, postgres, []string{"data-keepwatch-sync-0", orphan}},
		"of Postgres":    {postgres, values{"config": values{"to": "postgres://sync@other/kubernetes"}}, nil},
		"from Postgres":  {postgres, values{}, []string{"no volume", orphan}},
		"not a quantity": {values{}, size("20GB"), []string{"size"}},
	} {
		set := find[appsv1.StatefulSet](t, manifests(t, "keepwatch-sync", c.before), "StatefulSet")
		chart, err := loader.LoadDir(chartDir("keepwatch-sync"))
		if err != nil {
			t.Fatal(err)
		}
		release := common.ReleaseOptions{Name: "keepwatch-sync", Namespace: installed, Revision: 2, IsUpgrade: true}
		all, err := util.ToRenderValues(chart, c.after, release, common.DefaultCapabilities)
		if err == nil {
			_, err = engine.RenderWithClientProvider(chart, all, lookups{set})
		}
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %s in: %v", name, want, err)
			}
		}
	}
}
