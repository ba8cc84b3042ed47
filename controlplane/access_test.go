package controlplane_test

import (
	"crypto/tls"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestOnlyHealthIsOpen(t *testing.T) {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(shared.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/healthz": 200, "/livez/ping": 200, "/readyz/etcd": 200,
		"/": 401, "/api": 401, "/api/v1/namespaces": 401, "/version": 401, "/metrics": 401, "/openapi/v2": 401,
		"/livezz": 401, "/api/v1/livez": 401, "/debug/pprof/": 401,
	} {
		answer := must(client.Get(shared.RESTConfig().Host + path))(t)
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s answers anyone %d, want %d", path, answer.StatusCode, want)
		}
	}
}

func TestWrongTokenAndCertificate(t *testing.T) {
	config := shared.RESTConfig()
	config.BearerToken += "x"
	if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token: %v", err)
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{}}}
	defer stranger.CloseIdleConnections()
	if answer, err := stranger.Get(config.Host + "/livez"); err == nil {
		answer.Body.Close()
		t.Error("the certificate is trusted without the pinned authority")
	}
}

func TestImpersonation(t *testing.T) {
	config := shared.RESTConfig()
	config.Impersonate.UserName = "bob"
	if _, err := must(kubernetes.NewForConfig(config))(t).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("as bob: %v", err)
	}
}
