package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// In front of a server, a client with the proxy's kubeconfig reads, watches and writes as the server's.
func TestProxyCommand(t *testing.T) {
	cluster(t)
	file := filepath.Join(t.TempDir(), "proxy.kubeconfig")
	p := startProcess(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", file)
	waitLine(t, p, "keepwatch: proxy of ")
	if about, err := os.Stat(file); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig: %v, %v", about.Mode(), err)
	}
	maps := clientOf(t, file).CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	created, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "proxied-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).UID != created.UID {
		t.Errorf("got %v", e)
	}
	terminate(t, p)
}

func TestProxyUsage(t *testing.T) {
	for _, args := range [][]string{{"--tls-cert-file", "x"}, {"--tls-private-key-file", "x"}, {"argument"}, {"--watch-history", "x"}, {"--kubeconfig", "missing"}} {
		code, stdout, stderr := execute(t, append([]string{"proxy"}, args...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "keepwatch: ") {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

// A kubeconfig of another cluster is not replaced.
func TestProxyKeepsOtherKubeconfigs(t *testing.T) {
	cluster(t)
	theirs := os.Getenv("KUBECONFIG")
	before, err := os.ReadFile(theirs)
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr := execute(t, "proxy", "--listen", "127.0.0.1:0", "--kubeconfig-out", theirs)
	if code != 1 || !strings.Contains(stderr, "it was not changed, give another file with --kubeconfig-out") {
		t.Errorf("exit %d, stderr %q", code, stderr)
	}
	if after, err := os.ReadFile(theirs); string(after) != string(before) || err != nil {
		t.Errorf("the file is changed, %v", err)
	}
}
