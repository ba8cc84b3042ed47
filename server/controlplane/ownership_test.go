package controlplane_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// foreignKeys are keys of another API server: one of its own, a terminating namespace with contents of
// which this server serves one kind only, and a custom resource definition that no controller has
// processed.
var foreignKeys = map[string]string{
	"/registry/masterleases/192.0.2.1":     `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"192.0.2.1"}}`,
	"/registry/namespaces/going":           `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"going","uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}`,
	"/registry/configmaps/going/c":         `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"going","uid":"2"}}`,
	"/registry/others.example.com/going/x": `{"kind":"Other","apiVersion":"example.com/v1","metadata":{"name":"x","namespace":"going"}}`,
	"/registry/apiextensions.k8s.io/customresourcedefinitions/news.example.com": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",
		"metadata":{"name":"news.example.com","uid":"3","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["customresourcecleanup.apiextensions.k8s.io"]},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"news","singular":"new","kind":"New","listKind":"NewList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
}

// plainEtcd starts an external etcd without TLS that has some keys.
func plainEtcd(t *testing.T, keys map[string]string) (controlplane.EtcdCluster, *clientv3.Client) {
	t.Helper()
	cluster := controlplane.EtcdCluster{Servers: []string{startEtcd(t, controlplane.EtcdCluster{})}}
	client := etcdClient(t, clientv3.Config{Endpoints: cluster.Servers})
	for key, value := range keys {
		must(client.Put(t.Context(), key, value))(t)
	}
	return cluster, client
}

func etcdRevision(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	return must(client.Get(t.Context(), "any"))(t).Header.Revision
}

// The server serves reads of an etcd that another server has written to, and writes nothing to it: it
// refuses write requests with a message, and none of its own loops writes.
func TestForeignEtcdIsReadOnly(t *testing.T) {
	t.Parallel()
	for _, storage := range []controlplane.Storage{controlplane.StoreStorage, controlplane.UpstreamStorage} {
		t.Run(string(storage), func(t *testing.T) {
			cluster, etcd := plainEtcd(t, foreignKeys)
			before := etcdRevision(t, etcd)
			server := start(t, controlplane.Options{Etcd: cluster, Storage: storage})
			if !server.ReadOnly() {
				t.Error("the server is not read-only")
			}
			c := connect(t, server.RESTConfig())
			if list := must(c.typed.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 1 {
				t.Errorf("%d config maps are read", len(list.Items))
			}
			must(c.typed.CoreV1().Namespaces().Get(t.Context(), "going", metav1.GetOptions{}))(t)
			watch := must(c.typed.CoreV1().ConfigMaps("going").Watch(t.Context(), metav1.ListOptions{}))(t)
			select {
			case <-watch.ResultChan():
			case <-time.After(await.Deadline):
				t.Error("a watch sends no initial events")
			}
			watch.Stop()
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
			must(c.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)

			for _, request := range []struct{ method, path, contentType, body string }{
				{"POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces?dryRun=All", asJSON, `{"metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces/going/configmaps", asJSON, `{"metadata":{"name":"more"}}`},
				{"PUT", "/api/v1/namespaces/going/configmaps/c", asJSON, `{"metadata":{"name":"c"},"data":{"a":"b"}}`},
				{"PUT", "/api/v1/namespaces/going/finalize", asJSON, `{"metadata":{"name":"going"}}`},
				{"PATCH", "/api/v1/namespaces/going/configmaps/c", "application/merge-patch+json", `{"data":{"a":"b"}}`},
				{"PATCH", "/api/v1/namespaces/going/configmaps/more?fieldManager=me", "application/apply-patch+yaml",
					`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"more"}}`},
				{"PATCH", "/api/v1/namespaces/going/status", "application/merge-patch+json", `{}`},
				{"DELETE", "/api/v1/namespaces/going/configmaps/c", "", ""},
				{"DELETE", "/api/v1/namespaces/going/configmaps/c?dryRun=All", "", ""},
				{"DELETE", "/api/v1/namespaces/going/configmaps", "", ""},
				{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON, `{}`},
				{"POST", "/apis/example.com/v1/namespaces/going/news", asJSON,
					`{"kind":"New","apiVersion":"example.com/v1","metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces/going/pods/x/eviction", asJSON, `{}`},
			} {
				if why := notAllowed(t, server.RESTConfig(), request.method, request.path, request.contentType,
					request.body); why != "" {
					t.Errorf("%s %s: %s", request.method, request.path, why)
				}
			}
			server.stop()
			if after := etcdRevision(t, etcd); after != before {
				t.Errorf("etcd was at revision %d, and is at %d", before, after)
				for _, kv := range must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t).Kvs {
					if kv.ModRevision > before {
						t.Logf("%s: %s", kv.Key, kv.Value)
					}
				}
			}
		})
	}
}

// notAllowed returns the difference between the response to a write and the expected refusal; empty if
// there is none.
func notAllowed(t *testing.T, config *rest.Config, method, path, contentType, body string) string {
	t.Helper()
	client := must(rest.HTTPClientFor(config))(t)
	defer client.CloseIdleConnections()
	request := must(http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body)))(t)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer := must(client.Do(request))(t)
	defer answer.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		return fmt.Sprintf("%s, no status: %v", answer.Status, err)
	}
	if answer.StatusCode != http.StatusMethodNotAllowed || status.Code != http.StatusMethodNotAllowed ||
		status.Reason != metav1.StatusReasonMethodNotAllowed || !strings.Contains(status.Message, "--adopt") {
		return fmt.Sprintf("%s, %+v", answer.Status, status)
	}
	return ""
}

// An empty etcd belongs to the first server that uses it, also after it has keys.
func TestEmptyEtcdIsOwn(t *testing.T) {
	t.Parallel()
	cluster, etcd := plainEtcd(t, nil)
	for _, name := range []string{"first", "second"} {
		server := start(t, controlplane.Options{Etcd: cluster})
		if server.ReadOnly() {
			t.Errorf("the %s server is read-only", name)
		}
		must(connect(t, server.RESTConfig()).typed.CoreV1().Pods("default").Create(t.Context(), testPod(name),
			metav1.CreateOptions{}))(t)
		server.stop()
	}
	if owners := must(etcd.Get(t.Context(), "/keepwatch/owner"))(t).Kvs; len(owners) != 1 || owners[0].Version != 1 ||
		len(owners[0].Value) == 0 {
		t.Errorf("the owner key is %v", owners)
	}
}

// Adopt makes a foreign etcd the server's own, permanently.
func TestAdopt(t *testing.T) {
	t.Parallel()
	cluster, _ := plainEtcd(t, foreignKeys)
	for _, adopt := range []bool{true, false} {
		server := start(t, controlplane.Options{Etcd: cluster, Adopt: adopt})
		c := connect(t, server.RESTConfig())
		if server.ReadOnly() {
			t.Fatalf("the server is read-only, --adopt %v", adopt)
		}
		await.State(t, "the namespace is deleted", func() (bool, string) {
			_, err := c.typed.CoreV1().Namespaces().Get(t.Context(), "going", metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		server.stop()
	}
}

// An external etcd with any key is foreign.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"/registry/ranges/serviceips", "/kubernetes.io/pods/ns/a", "/bootstrap/0123", "patroni"} {
		t.Run(strings.Trim(strings.ReplaceAll(key, "/", "-"), "-"), func(t *testing.T) {
			cluster, etcd := plainEtcd(t, map[string]string{key: "x"})
			if server := start(t, controlplane.Options{Etcd: cluster}); !server.ReadOnly() {
				t.Error("the server is not read-only")
			}
			if all := must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t).Kvs; len(all) != 1 ||
				!bytes.Equal(all[0].Key, []byte(key)) {
				t.Errorf("etcd has %v", all)
			}
		})
	}
}
