package proxy

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// TestRedefinedType gives a custom resource's field a default while the proxy and keepwatch watch follow it: all
// objects look different then, at the resource versions that they had (kubernetes #74105). The proxy answers as the
// server does, and the stream has the difference, with new ids.
func TestRedefinedType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define()
	client, err := dynamic.NewForConfig(r.server.Config())
	r.must(err)
	for _, name := range []string{"a", "b"} {
		_, err := client.Resource(widgetsResource).Namespace("default").Create(t.Context(),
			&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
				"spec": map[string]any{"a": int64(1)},
			}}, metav1.CreateOptions{})
		r.must(err)
	}
	r.waitCached(widgets + "?resourceVersion=0")
	stream := r.follow("widgets.example.com", "-n", "default")
	r.eventually("both are in the stream", func() bool { return len(stream.byName("ADDED")) == 2 })

	definitions, err := apiextensions.NewForConfig(r.server.Config())
	r.must(err)
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "widgets.example.com",
		types.JSONPatchType, []byte(`[{
		"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties", "value": {
			"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"d": {"type": "integer", "default": 7}}}
		}
	}]`), metav1.PatchOptions{})
	r.must(err)
	r.eventually("the server shows the default", func() bool { return strings.Contains(r.behind(widgets).body, `"d":7`) })
	r.eventually("the proxy answers the same from its cache", func() bool {
		before := r.answered()
		got := r.proxy(widgets + "?resourceVersion=0")
		return r.answered() > before && got.body == r.behind(widgets+"?resourceVersion=0").body
	})
	r.eventually("both are changed in the stream", func() bool { return len(stream.byName("MODIFIED")) == 2 })
	for name, was := range stream.byName("ADDED") {
		is := stream.byName("MODIFIED")[name]
		if is.ID == was.ID || is.Object.GetResourceVersion() != was.Object.GetResourceVersion() {
			t.Errorf("%s is %s at %s, and was %s at %s", name, is.ID, is.Object.GetResourceVersion(), was.ID,
				was.Object.GetResourceVersion())
		}
		if d, _, _ := unstructured.NestedInt64(is.Object.Object, "spec", "d"); d != 7 {
			t.Errorf("%s has d: %d", name, d)
		}
	}
}

// stream is a running keepwatch watch.
type stream struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	Type   string
	ID     string
	Object *unstructured.Unstructured
}

// follow runs keepwatch watch at the server for the duration of the test.
func (r *rig) follow(args ...string) *stream {
	r.Helper()
	kubeconfig := filepath.Join(r.TempDir(), "kubeconfig")
	r.must(peer.WriteKubeconfig(kubeconfig, r.server.Config()))
	cmd := exec.CommandContext(r.Context(), peer.Keepwatch(r), append([]string{"watch", "--kubeconfig", kubeconfig},
		args...)...)
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	s, done := &stream{}, make(chan struct{})
	r.Cleanup(func() {
		<-done
		cmd.Wait() // killed with the test's context
	})
	go func() {
		defer close(done)
		for lines := bufio.NewReader(out); ; {
			text, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				r.Errorf("%v: %s", err, text)
				return
			}
			s.mu.Lock()
			s.lines = append(s.lines, l)
			s.mu.Unlock()
		}
	}()
	return s
}

// byName returns the last line of a type for each object.
func (s *stream) byName(kind string) map[string]line {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]line{}
	for _, l := range s.lines {
		if l.Type == kind {
			all[l.Object.GetName()] = l
		}
	}
	return all
}
