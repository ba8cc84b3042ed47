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

	"github.com/keepwatch/keepwatch/controlplane"
)

// foreign are keys as another API server writes them: one of its own, a namespace that somebody has
// deleted, of whose contents this server knows the kind of one only, and a custom resource definition
// that no controller has looked at.
var foreign = map[string]string{
	"/registry/masterleases/192.0.2.1":        `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"192.0.2.1"}}`,
	"/registry/namespaces/going":              `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"going","uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Terminating"}}`,
	"/registry/configmaps/going/held":         `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"held","namespace":"going","uid":"2"}}`,
	"/registry/strangers.example.com/going/x": `{"kind":"Stranger","apiVersion":"example.com/v1","metadata":{"name":"x","namespace":"going"}}`,
	"/registry/apiextensions.k8s.io/customresourcedefinitions/news.example.com": `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1",
		"metadata":{"name":"news.example.com","uid":"3","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["customresourcecleanup.apiextensions.k8s.io"]},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"news","singular":"new","kind":"New","listKind":"NewList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
}

// plainEtcd is an external etcd without TLS that holds keys.
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

// An etcd that another server has written to is served, and nothing is written to it: not by requests,
// which are refused with a sentence, and by no loop of the server's own.
func TestForeignEtcdIsReadOnly(t *testing.T) {
	for _, storage := range []controlplane.Storage{controlplane.StoreStorage, controlplane.UpstreamStorage} {
		t.Run(string(storage), func(t *testing.T) {
			cluster, etcd := plainEtcd(t, foreign)
			before := etcdRevision(t, etcd)
			server := start(t, controlplane.Options{Etcd: cluster, Storage: storage})
			if !server.ReadOnly() {
				t.Error("the server does not say that it is read-only")
			}
			c := connect(t, server.RESTConfig())
			if list := must(c.typed.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}))(t); len(list.Items) != 1 {
				t.Errorf("%d config maps are read", len(list.Items))
			}
			must(c.typed.CoreV1().Namespaces().Get(t.Context(), "going", metav1.GetOptions{}))(t)
			watch := must(c.typed.CoreV1().ConfigMaps("going").Watch(t.Context(), metav1.ListOptions{}))(t)
			select {
			case <-watch.ResultChan():
			case <-time.After(deadline):
				t.Error("a watch is not told what there is")
			}
			watch.Stop()
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods"}}}
			must(c.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)

			for _, request := range []struct{ method, path, contentType, body string }{
				{"POST", "/api/v1/namespaces", asJSON, `{"metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces?dryRun=All", asJSON, `{"metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces/going/configmaps", asJSON, `{"metadata":{"name":"more"}}`},
				{"PUT", "/api/v1/namespaces/going/configmaps/held", asJSON, `{"metadata":{"name":"held"},"data":{"a":"b"}}`},
				{"PUT", "/api/v1/namespaces/going/finalize", asJSON, `{"metadata":{"name":"going"}}`},
				{"PATCH", "/api/v1/namespaces/going/configmaps/held", "application/merge-patch+json", `{"data":{"a":"b"}}`},
				{"PATCH", "/api/v1/namespaces/going/configmaps/more?fieldManager=me", "application/apply-patch+yaml", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"more"}}`},
				{"PATCH", "/api/v1/namespaces/going/status", "application/merge-patch+json", `{}`},
				{"DELETE", "/api/v1/namespaces/going/configmaps/held", "", ""},
				{"DELETE", "/api/v1/namespaces/going/configmaps/held?dryRun=All", "", ""},
				{"DELETE", "/api/v1/namespaces/going/configmaps", "", ""},
				{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON, `{}`},
				{"POST", "/apis/example.com/v1/namespaces/going/news", asJSON, `{"kind":"New","apiVersion":"example.com/v1","metadata":{"name":"more"}}`},
				{"POST", "/api/v1/namespaces/going/pods/x/eviction", asJSON, `{}`},
			} {
				if why := notAllowed(t, server.RESTConfig(), request.method, request.path, request.contentType, request.body); why != "" {
					t.Errorf("%s %s: %s", request.method, request.path, why)
				}
			}
			server.stop()
			if after := etcdRevision(t, etcd); after != before {
				t.Errorf("etcd was at revision %d, and is at %d now", before, after)
				for _, kv := range must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t).Kvs {
					if kv.ModRevision > before {
						t.Logf("%s: %s", kv.Key, kv.Value)
					}
				}
			}
		})
	}
}

// notAllowed says what is wrong with the refusal of a write; empty if it is as it should be.
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

// An etcd that holds nothing belongs to the server that meets it first, also when it holds something later.
func TestEmptyEtcdIsOwn(t *testing.T) {
	cluster, etcd := plainEtcd(t, nil)
	for _, name := range []string{"first", "second"} {
		server := start(t, controlplane.Options{Etcd: cluster})
		if server.ReadOnly() {
			t.Errorf("the %s server is read-only", name)
		}
		must(connect(t, server.RESTConfig()).typed.CoreV1().Pods("default").Create(t.Context(), testPod(name), metav1.CreateOptions{}))(t)
		server.stop()
	}
	if marks := must(etcd.Get(t.Context(), "/keepwatch/owner"))(t).Kvs; len(marks) != 1 || marks[0].Version != 1 || len(marks[0].Value) == 0 {
		t.Errorf("the mark is %v", marks)
	}
}

// A person can say that a foreign etcd is to belong to the server, once.
func TestAdopt(t *testing.T) {
	cluster, _ := plainEtcd(t, foreign)
	for _, adopt := range []bool{true, false} {
		server := start(t, controlplane.Options{Etcd: cluster, Adopt: adopt})
		c := connect(t, server.RESTConfig())
		if server.ReadOnly() {
			t.Fatalf("the server is read-only, --adopt %v", adopt)
		}
		eventually(t, "the namespace cleaner does its work", func() (bool, string) {
			_, err := c.typed.CoreV1().Namespaces().Get(t.Context(), "going", metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
		server.stop()
	}
}

// What an external etcd holds is enough to make it foreign, below whatever prefix.
func TestForeignKeys(t *testing.T) {
	for _, key := range []string{"/registry/ranges/serviceips", "/kubernetes.io/pods/ns/a", "/bootstrap/0123", "patroni"} {
		t.Run(strings.Trim(strings.ReplaceAll(key, "/", "-"), "-"), func(t *testing.T) {
			cluster, etcd := plainEtcd(t, map[string]string{key: "x"})
			if server := start(t, controlplane.Options{Etcd: cluster}); !server.ReadOnly() {
				t.Error("the server takes it for its own")
			}
			if all := must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t).Kvs; len(all) != 1 || !bytes.Equal(all[0].Key, []byte(key)) {
				t.Errorf("it holds %v now", all)
			}
		})
	}
}
