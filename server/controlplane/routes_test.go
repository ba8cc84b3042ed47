package controlplane_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// The read path answers only paths that the routes of k8s.io/apiserver have, although RequestInfo
// parses others too. The test compares two servers on one etcd, of which one has the read path.
func TestRoutesAreTheLibrarys(t *testing.T) {
	t.Parallel()
	own := start(t, controlplane.Options{TemporaryEtcd: true})
	library := start(t, controlplane.Options{Etcd: own.EtcdCluster(), Storage: controlplane.UpstreamStorage})
	c := connect(t, own.RESTConfig())
	widgets := newCRD(t, c, "routed")
	must(c.typed.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}, metav1.CreateOptions{}))(t)
	must(c.typed.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}))(t)
	open(t, c, widgets)
	open(t, connect(t, library.RESTConfig()), widgets)

	const maps, all = "/api/v1/namespaces/default/configmaps", "/api/v1/configmaps"
	custom := "/apis/" + widgets.Group + "/v1/namespaces/default/" + widgets.Resource
	readUpTo(t, lastRevision(t, c), []string{all, "/api/v1/nodes", "/api/v1/namespaces", "/apis/apps/v1/deployments",
		custom}, own, library)
	requests := newRequests()
	for _, path := range []string{
		maps, maps + "/", maps + "//", maps + "///c1", maps + "//c1", maps + "/c1", maps + "/c1/", maps + "/c1//",
		maps + "/c1//x", maps + "/c1/x", maps + "/c1///x/y",
		maps + "/c1/status", maps + "/c1%2Fstatus", maps + "/%63%31", maps + "/.", maps + "/..", maps + "/c%25",
		maps + "/%F0%9F%98%80", maps + "/%2F", maps + "%2Fc1",
		all, all + "/", all + "/c1", all + "//c1", "//api/v1/configmaps", "/api//v1/configmaps", "/api/v1//configmaps",
		"/api/v1/configmaps%2F", "/API/v1/configmaps",
		"/api/v1/namespaces//configmaps", "/api/v1/namespaces//configmaps/c1", "/api/v1/namespaces/../configmaps",
		"/api/v1/namespaces/./configmaps", "/api/v1/namespaces/a%2Fb/configmaps",
		"/api/v1/namespaces/DEFAULT/configmaps", "/api/v1/namespaces/a%00b/configmaps",
		"/api/v1/namespaces/%F0%9F%98%80/configmaps",
		"/api/v1/namespaces//nodes", "/api/v1/namespaces/default/nodes", "/api/v1/namespaces/default/nodes/n1",
		"/api/v1/nodes//n1", "/api/v1/nodes///n1",
		"/api/v1/namespaces/default", "/api/v1/namespaces/default/", "/api/v1/namespaces/default//",
		"/api/v1/namespaces/default/namespaces", "/api/v1/namespaces/default/namespaces/default",
		"/api/v1/namespaces//namespaces", "/api/v1/namespaces///default", "/api/v1/namespaces/default/status",
		"/api/v1/namespaces/default/finalize",
		"/apis//v1/configmaps", "/apis//v1/namespaces/default/configmaps", "/apis//v1/nodes/n1", "/api/apps/v1/deployments",
		"/apis/apps/v1/deployments", "/apis/apps//v1/deployments", "/apis/apps/v1//deployments",
		"/api/v1/watch/configmaps?timeoutSeconds=1&resourceVersion=0",
		"/api/v1/watch/configmaps?watch=1&timeoutSeconds=1&resourceVersion=0",
		"/api/v1/watch/namespaces/default/configmaps/c1?watch=1&timeoutSeconds=1&resourceVersion=0",
		"/api/v1/watch/namespaces/default?watch=1&timeoutSeconds=1&resourceVersion=0", "/api/v1/proxy/configmaps",
		"/api/v1/watch", "/api/v1/watch/",
		custom, custom + "/", custom + "///c1", custom + "//c1", "/apis/" + widgets.Group + "/v1/" + widgets.Resource + "///",
		"//apis/" + widgets.Group + "/v1/" + widgets.Resource,
		"/apis/" + widgets.Group + "/v1/namespaces//" + widgets.Resource, "/apis/" + widgets.Group + "/v1/namespaces/../" +
			widgets.Resource, "/apis/" + widgets.Group + "/v1/namespaces//" + widgets.Resource + "/w",

		all + "?limit=-1", all + "?limit=9223372036854775807", all + "?limit=9223372036854775808", all + "?limit=1&limit=2",
		all + "?limit=&limit=1", all + "?limit=%201", all + "?limit=0x1", all + "?limit=1.5",
		all + "?resourceVersionMatch=none&resourceVersion=1", all + "?resourceVersion=-1", all + "?resourceVersion=00",
		all + "?resourceVersion=%2B1", all + "?resourceVersion=18446744073709551616",
		all + "?resourceVersion=0&resourceVersionMatch=Exact",
		all + "?watch=0&watch=1", all + "?watch=1&watch=0&timeoutSeconds=1&resourceVersion=0",
		all + "?watch=maybe&timeoutSeconds=1&resourceVersion=0", all + "?watch&timeoutSeconds=1&resourceVersion=0",
		all + "?timeoutSeconds=-1", all + "?watch=1&timeoutSeconds=-1&resourceVersion=0", all + "?watch=1&timeoutSeconds=-1",
		all + "?watch=1&timeoutSeconds=a", all + "?watch=1&timeoutSeconds=9223372036854775808",
		all + "?pretty=false", all + "?pretty=0", all + "?pretty=maybe", all + "?pretty",
		all + "?fieldSelector=metadata.name", all + "?fieldSelector=metadata.name%3D", all + "?fieldSelector=%5C",
		all + "?fieldSelector=metadata.name%3Dc1&fieldSelector=metadata.name%3Dc2",
		all + "?fieldSelector=metadata.name%3D..", all + "?fieldSelector=metadata.namespace%3D..",
		all + "?fieldSelector=metadata.namespace%3Da%2Fb", maps + "?fieldSelector=metadata.namespace%3Dkube-system",
		all + "?labelSelector=a+in+()", all + "?labelSelector=!a,b", all + "?labelSelector=%00",
		all + "?labelSelector=a&labelSelector=b",
		all + "?continue=a", all + "?continue=%00", all + "?limit=1&continue=" + otherToken + "&resourceVersion=1",
		all + "?continue=" + otherToken + "&resourceVersion=0",
		all + "?watch=1&timeoutSeconds=1&resourceVersion=0&continue=" + otherToken + "&fieldSelector=metadata.name%3Dc1",
		all + "?a=b;limit=1", all + "?%zz", all + "?allowWatchBookmarks=1", all + "?sendInitialEvents=0", all + "?export=1",
		maps + "/c1?export=0", maps + "/c1?export=a", maps + "/c1?resourceVersion=a",
		maps + "/c1?resourceVersion=a&export=false",
		maps + "/c1?resourceVersion=-1", maps + "/c1?resourceVersion=0", maps + "/c1?limit=a",
	} {
		requests.send(path, func() error { return same(t, own.RESTConfig(), library.RESTConfig(), path, asJSON) })
	}
	must(0, requests.wait())(t)
}

// A server whose routes are installed at the first requests answers as one that has them from its start, the first one
// of the process.
func TestRoutesOfLaterServersAreTheSame(t *testing.T) {
	later := start(t, controlplane.Options{}).RESTConfig()
	var versions errgroup.Group
	for _, kind := range builtinKinds {
		if !strings.Contains(kind.groupVersion, "/") {
			continue
		}
		group, _, _ := strings.Cut(kind.groupVersion, "/")
		for _, path := range []string{"/apis/" + group, "/apis/" + group + "/", "/apis/" + kind.groupVersion, "/apis/" +
			kind.groupVersion + "/" + kind.resource} {
			versions.Go(func() error { // many at a time request the same group
				first, err := request(t.Context(), shared.RESTConfig(), path+"?labelSelector=none", asJSON, "identity")
				if err != nil {
					return err
				}
				second, err := request(t.Context(), later, path+"?labelSelector=none", asJSON, "identity")
				first.body, second.body = revision.ReplaceAllString(first.body, ""), revision.ReplaceAllString(second.body, "")
				if first != second {
					t.Errorf("%s:\nfirst server: %s\nlater server: %s", path, first.difference(second), second.difference(first))
				}
				return err
			})
		}
	}
	if err := versions.Wait(); err != nil {
		t.Fatal(err)
	}
}

// revision is that of a list.
var revision = regexp.MustCompile(`"resourceVersion":"[0-9]+"`)

// The list of all paths has those of groups that nobody has requested, and so has the discovery document of all groups.
func TestPathsOfLaterServers(t *testing.T) {
	later := start(t, controlplane.Options{}).RESTConfig()
	for path, accept := range map[string]string{"/": asJSON,
		"/apis": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"} {
		answer, err := request(t.Context(), later, path, accept, "identity")
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range builtinKinds {
			want := `"/apis/` + kind.groupVersion + `"`
			if path == "/apis" {
				want = `"resource":"` + kind.resource + `"`
			}
			if strings.Contains(kind.groupVersion, "/") && !strings.Contains(answer.body, want) {
				t.Errorf("%s lacks %s", path, want)
			}
		}
	}
}

// Timeouts that overflow a duration are served as long ones, over HTTP/2 and 1.1.
func TestWatchesWithLongTimeouts(t *testing.T) {
	for _, protocol := range []string{"h2", "http/1.1"} {
		config := shared.RESTConfig()
		config.NextProtos = []string{protocol}
		for _, seconds := range []int64{9223372035, 9223372036, 9223372037, math.MaxInt64} {
			w, err := connect(t, config).typed.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0",
				TimeoutSeconds: &seconds})
			if err != nil {
				t.Errorf("%s, %d seconds: %v", protocol, seconds, err)
				continue
			}
			if e := <-w.ResultChan(); e.Type != watch.Added {
				t.Errorf("%s, %d seconds: %+v", protocol, seconds, e)
			}
			w.Stop()
		}
	}
}
