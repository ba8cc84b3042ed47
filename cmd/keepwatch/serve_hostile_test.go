package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Invalid requests are answered with errors, and are not logged.
func TestServeLogsNoInvalidRequests(t *testing.T) {
	parallel(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	line := p.waitReady(t)
	config := configOf(t, file)
	for _, protocol := range []string{"http/1.1", "h2"} {
		wrong := rest.CopyConfig(config)
		wrong.NextProtos = []string{protocol}
		sendInvalidRequests(t, httpClient(t, wrong), config.Host)
	}
	sendGarbage(t, config)
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := p.stderr.String(); text != line {
		t.Errorf("stderr also has: %s", strings.TrimPrefix(text, line))
	}
}

// sendInvalidRequests sends requests that are refused, each for another reason.
func sendInvalidRequests(t *testing.T, client *http.Client, host string) {
	t.Helper()
	defer client.CloseIdleConnections()
	const maps = "/api/v1/namespaces/default/configmaps"
	const apply = maps + "/a?fieldManager=test&fieldValidation=Strict"
	client.Timeout = await.Deadline
	for _, m := range []struct{ method, path, media, body string }{
		{"GET", maps + "?limit=a", "", ""}, {"GET", maps + "?watch=maybe&limit=a", "", ""},
		{"GET", maps + "?labelSelector=%3D%3D", "", ""},
		{"GET", maps + "?timeout=a", "", ""}, {"GET", maps + "?timeout=-5s", "", ""}, {"GET", maps + "?continue=a", "", ""},
		{"GET", maps + "?resourceVersion=a", "", ""}, {"GET", maps + "?resourceVersion=a&watch=1", "", ""},
		{"GET", maps + "?resourceVersion=9999999&watch=1&timeoutSeconds=1", "", ""},
		{"GET", maps + "?a=b;limit=1&pretty=;", "", ""}, {"GET", maps + "?%zz", "", ""}, {"GET", "//api/v1", "", ""},
		{"GET", "/api/v1/watch", "", ""}, {"GET", "/api/v1/proxy/pods", "", ""},
		{"GET", maps + "/none", "", ""}, {"DELETE", maps + "/none", "", ""}, {"DELETE", maps + "/none", "application/json",
			"{"}, {"BREW", maps, "", ""},
		{"POST", maps, "application/json", "{"}, {"POST", maps, "text/plain", "a"},
		{"POST", maps, "application/vnd.kubernetes.protobuf", "k8s\x00a"},
		{"POST", maps, "application/json", `{"kind":"Pod","apiVersion":"v1"}`}, {"POST", maps, "application/json",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"A B"}}`},
		{"POST", maps + "?fieldValidation=Strict", "application/json",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"none":1}`},
		{"POST", maps, "application/json", `{"data":"` + strings.Repeat("a", 4<<20) + `"}`},
		{"PATCH", apply, "application/apply-patch+yaml",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"none":1}`},
		{"PATCH", maps + "/a?fieldManager=test", "application/apply-patch+yaml",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"none":1}`},
		{"PATCH", apply, "application/apply-patch+yaml",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":[1]}`},
		{"PATCH", maps + "/a", "application/apply-patch+yaml", "{"}, {"PATCH", maps + "/a", "application/json-patch+json",
			`[{"op":"none"}]`}, {"PATCH", maps + "/a", "application/strategic-merge-patch+json", `{"data":1}`},
		{"PATCH", maps + "/a", "application/merge-patch+json",
			`{"metadata":{"managedFields":[{"manager":"a","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"a":1}}]}}`},
		{"PUT", maps + "/a", "application/json", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"}}`},
		{"PUT", maps + "/a", "application/json",
			`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"1"}}`},
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json",
			`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"a"},"spec":{}}`},
	} {
		q, err := http.NewRequestWithContext(t.Context(), m.method, host+m.path, strings.NewReader(m.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", m.media)
		answer, err := client.Do(q)
		if err != nil {
			t.Logf("%s %s: %v", m.method, m.path, err) // the connection is ended, too, which is an answer
			continue
		}
		body, _ := io.ReadAll(answer.Body)
		answer.Body.Close()
		if answer.StatusCode >= 500 && answer.StatusCode != http.StatusGatewayTimeout {
			t.Logf("%s %s: %s %s", m.method, m.path, answer.Status, body)
		}
	}
}

// sendGarbage sends invalid bytes over TCP, TLS, HTTP/1.1 and HTTP/2, and disconnects.
func sendGarbage(t *testing.T, config *rest.Config) {
	t.Helper()
	address := strings.TrimPrefix(config.Host, "https://")
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	var sending sync.WaitGroup
	defer sending.Wait()
	for _, g := range []struct{ protocol, bytes string }{
		{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"}, {"", "\x16\x03\x01\xff\xff"}, {"", ""},
		{"http/1.1", "nonsense\r\n\r\n"}, {"http/1.1", "GET / HTTP/1.1\r\nHost: a\r\nA: " + strings.Repeat("a", 2<<20)},
		{"http/1.1", "GET / HTTP/9.9\r\n\r\n"}, {"http/1.1", "GET /"},
		{"http/1.1", "POST /api HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n"},
		{"h2", "GET / HTTP/1.1\r\n\r\n"}, {"h2", preface},
		{"h2", preface + settings + "\xff\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"h2", preface + "\x00\x00\x04\x00\x00\x00\x00\x00\x01aaaa"},
		{"h2", preface + settings + "\x00\x00\x04\x01\x05\x00\x00\x00\x01aaaa"},
		{"h2", preface + settings + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"h2", preface + settings + "\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\xff\xff\xff\xff"},
		{"h2", preface + settings + "\x00\x00\x00\x04\x00\x00\x00\x00\x03"},
	} {
		sending.Go(func() { // the server waits for up to a second before it ends such a connection
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if g.protocol != "" {
				secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{g.protocol}})
				if err := secure.Handshake(); err != nil {
					t.Error(err)
					return
				}
				conn = secure
			}
			io.WriteString(conn, g.bytes)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite() // unless the server has ended the connection
			conn.SetReadDeadline(time.Now().Add(await.Deadline))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection stays open after %.40q and its end", g.bytes)
			}
		})
	}
}

// Silent connections without a token use neither the descriptors that etcd needs nor those of clients
// with a token.
func TestServeWithFewDescriptors(t *testing.T) {
	parallel(t)
	if runtime.GOOS == "windows" {
		t.Skip("there is no limit of descriptors")
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	const limit = 220
	p := startWith(t, []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, limit)}, "serve", "--listen",
		"127.0.0.1:0", "--kubeconfig-out", file)
	line := p.waitReady(t)
	config := configOf(t, file)
	authenticated, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := authenticated.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for range 300 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(config.Host, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for i := range 20 { // each over a connection of its own
		other := rest.CopyConfig(config)
		other.UserAgent = fmt.Sprint("client-", i)
		client := httpClient(t, withProtocol(other, "h2"))
		answer, err := client.Get(config.Host + "/api/v1/namespaces")
		if err != nil {
			t.Fatalf("client %d: %v\n%s", i, err, p.stderr)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		client.CloseIdleConnections()
	}
	if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process.Pid)); err == nil && len(open) > limit-30 {
		t.Errorf("%d of %d descriptors are open", len(open), limit)
	}
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Errorf("an earlier watch has ended: %v", e)
		}
	default:
	}
	if _, err := authenticated.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "written"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	p.Process.Signal(syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit %d", code)
	}
	if text := p.stderr.String(); text != line {
		t.Errorf("stderr also has: %s", strings.TrimPrefix(text, line))
	}
}

func withProtocol(config *rest.Config, protocol string) *rest.Config {
	config.NextProtos = []string{protocol}
	return config
}
