package controlplane_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// A watch over a WebSocket sends one event a message. The library's handler serves it from the same
// storage, with the same history.
func TestWatchOverWebSocket(t *testing.T) {
	config := shared.RESTConfig()
	c := connect(t, config)
	ns := newNamespace(t, c)
	maps := c.typed.CoreV1().ConfigMaps(ns)
	first := must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		metav1.CreateOptions{}))(t)
	must(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{}))(t)
	const passed = `keepwatch_readpath_delegated_total{reason="protocol"}`
	before := counted(t, config, passed)

	path := "/api/v1/namespaces/" + ns + "/configmaps?watch=true&timeoutSeconds=600&resourceVersion=" +
		first.ResourceVersion
	dial := must(websocket.NewConfig("wss"+strings.TrimPrefix(config.Host, "https")+path, config.Host))(t)
	dial.TlsConfig = must(rest.TLSConfigFor(config))(t)
	dial.Header.Set("Authorization", "Bearer "+config.BearerToken)
	socket := must(dial.DialContext(t.Context()))(t)
	defer socket.Close()
	must(0, socket.SetDeadline(time.Now().Add(await.Deadline)))(t)
	expect := func(kind, name string) {
		t.Helper()
		var message string
		must(0, websocket.Message.Receive(socket, &message))(t)
		var e struct {
			Type   string
			Object corev1.ConfigMap
		}
		must(0, json.Unmarshal([]byte(message), &e))(t)
		if e.Type != kind || e.Object.Name != name {
			t.Errorf("got %s %s, want %s %s", e.Type, e.Object.Name, kind, name)
		}
	}
	expect("ADDED", "b")
	must(0, maps.Delete(t.Context(), "a", metav1.DeleteOptions{}))(t)
	expect("DELETED", "a")
	if n := counted(t, config, passed) - before; n != 1 {
		t.Errorf("%v requests are counted as passed on for their protocol", n)
	}
}

// Browsers cannot set headers: they send the token as a subprotocol, in addition to the one they use.
func TestTokenOfAWebSocket(t *testing.T) {
	config := shared.RESTConfig()
	for token, accepted := range map[string]bool{config.BearerToken: true, config.BearerToken + "x": false} {
		dial := must(websocket.NewConfig("wss"+strings.TrimPrefix(config.Host, "https")+
			"/api/v1/namespaces?watch=true&timeoutSeconds=600&resourceVersion=0", config.Host))(t)
		dial.TlsConfig = must(rest.TLSConfigFor(config))(t)
		dial.Protocol = []string{"base64url.bearer.authorization.k8s.io." +
			base64.RawURLEncoding.EncodeToString([]byte(token)), "base64.binary.k8s.io"}
		socket, err := dial.DialContext(t.Context())
		if (err == nil) != accepted {
			t.Fatalf("accepted %v: %v", accepted, err)
		}
		if !accepted {
			continue
		}
		defer socket.Close()
		must(0, socket.SetDeadline(time.Now().Add(await.Deadline)))(t)
		var message string
		must(0, websocket.Message.Receive(socket, &message))(t)
		if !strings.Contains(message, `"ADDED"`) {
			t.Errorf("it is sent %s", message)
		}
	}
}
