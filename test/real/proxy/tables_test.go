package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/proxy"
	"github.com/keepwatch/keepwatch/test/peer"
)

// kubectl prints the same bytes through the proxy and at the server: of widgets, which have a column of each type, from
// memory.
func TestKubectlGet(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(_ *rig, c *proxy.Config) { c.SmallCollection = -1 })
	r.define()
	r.columns(`[
		{"name":"Color","type":"string","jsonPath":".spec.color"}, {"name":"Size","type":"integer","jsonPath":".spec.size","description":"How large it is."},
		{"name":"Weight","type":"number","jsonPath":".spec.weight","priority":1}, {"name":"Ready","type":"boolean","jsonPath":".spec.ready"},
		{"name":"Due","type":"date","jsonPath":".spec.due"}, {"name":"All","type":"string","jsonPath":".spec","priority":1},
		{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}
	]`)
	for i := range 4 {
		r.widget(fmt.Sprint("w", i), map[string]any{
			"color": []any{"red", "<é>", "", nil}[i], "size": int64(i), "weight": 0.1 + float64(i), "ready": i%2 == 0,
			"due": []any{"1999-01-01T00:00:00Z", "soon", "2400-01-01T00:00:00Z", nil}[i],
		})
	}
	through := r.front.Config()
	through.Insecure, through.CAData = false, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: r.front.server.Certificate().Raw})
	direct, proxied := r.kubectl(r.server.Config()), r.kubectl(through)
	for _, args := range []string{
		"get widgets", "get widgets -A", "get widgets -o wide", "get widgets w1 w2", "get widgets w0",
		"get widgets --no-headers",
		"get widgets -l color=none", "get widgets --chunk-size 2", "get widgets --field-selector metadata.name=w3",
		"get widgets --sort-by .spec.color",
	} {
		verb := map[bool]string{true: "get", false: "list"}[args == "get widgets w1 w2" || args == "get widgets w0"]
		await.State(t, "kubectl "+args+" is answered from memory", func() (bool, string) {
			before := r.current.Load().Status().Saved[verb]
			want, got := direct.run(t.Context(), args), proxied.run(t.Context(), args)
			saved := r.current.Load().Status().Saved[verb] - before
			return got == want && got == direct.run(t.Context(), args) && saved > 0, fmt.Sprintf("%+v\n%s\n%s",
				r.current.Load().Status().Reads, got, want)
		})
	}
	if got := proxied.run(t.Context(),
		"get widgets -A -o wide"); !regexp.MustCompile(`default +w0 +red +0 +0.1 +true +2\dy +\{`).MatchString(got) {
		t.Errorf("kubectl prints\n%s", got)
	}
	r.definitionChanges(proxied, direct)
}

// definitionChanges runs kubectl get -w while widgets and their columns change.
func (r *rig) definitionChanges(proxied, direct kubectl) {
	r.Helper()
	before := r.current.Load().Status().Saved["watch"]
	command := proxied.command(r.Context(), "get widgets -w")
	out, err := command.StdoutPipe()
	r.must(err)
	r.must(command.Start())
	r.eventually("kubectl get -w is answered from memory", func() bool {
		return r.current.Load().Status().Saved["watch"] > before
	})
	r.widget("w9", map[string]any{"color": "new"})
	lines := bufio.NewScanner(out)
	for printed := false; !printed; printed = strings.HasPrefix(lines.Text(), "w9 ") {
		if !lines.Scan() {
			r.Fatalf("kubectl get -w ends after %q: %v", lines.Text(), lines.Err())
		}
	}
	if !regexp.MustCompile(`^w9 +new `).MatchString(lines.Text()) {
		r.Errorf("kubectl get -w prints %s", lines.Text())
	}
	r.columns(`[{"name":"Hue","type":"string","jsonPath":".spec.color"}]`)
	for lines.Scan() { // until the watch ends
	}
	_ = command.Wait() // it fails if the server of a watch is gone
	await.State(r.TB, "the new columns are printed from memory", func() (bool, string) {
		before := r.current.Load().Status().Saved["list"]
		got, want := proxied.run(r.Context(), "get widgets"), direct.run(r.Context(), "get widgets")
		return got == want && strings.Contains(got, "HUE") && r.current.Load().Status().Saved["list"] > before, got + want
	})
}

// kubectl runs kubectl at a server.
type kubectl struct{ path, kubeconfig, home string }

func (r *rig) kubectl(config *rest.Config) kubectl {
	r.Helper()
	k := kubectl{peer.Build(r.TB, peer.Kubectl), filepath.Join(r.TempDir(), "kubeconfig"), r.TempDir()}
	r.must(peer.WriteKubeconfig(k.kubeconfig, config))
	return k
}

func (k kubectl) command(ctx context.Context, args string) *exec.Cmd {
	command := exec.CommandContext(ctx, k.path, strings.Fields(args)...)
	command.Env = append(os.Environ(), peer.KubectlEnv(k.kubeconfig, k.home)...)
	return command
}

// run returns what kubectl prints.
func (k kubectl) run(ctx context.Context, args string) string {
	out, err := k.command(ctx, args).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return string(out)
}

// columns sets the columns of widgets, and waits until the server prints them.
func (r *rig) columns(columns string) {
	r.Helper()
	client, err := apiextensions.NewForConfig(r.server.Config())
	r.must(err)
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Patch(r.Context(), "widgets.example.com",
		types.JSONPatchType,
		[]byte(`[
			{"op":"add","path":"/spec/versions/0/additionalPrinterColumns","value":`+columns+`},
			{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema","value":
				{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}
		]`), metav1.PatchOptions{})
	r.must(err)
	var defined []apiextensionsv1.CustomResourceColumnDefinition
	r.must(json.Unmarshal([]byte(columns), &defined))
	r.eventually("the server prints the columns", func() bool {
		return strings.Contains(r.behind(widgets, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").body, `{"name":"`+
			defined[0].Name+`"`)
	})
}

func (r *rig) widget(name string, spec map[string]any) {
	r.Helper()
	client, err := dynamic.NewForConfig(r.server.Config())
	r.must(err)
	_, err = client.Resource(widgetsResource).Namespace("default").Create(r.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
		}}, metav1.CreateOptions{})
	r.must(err)
}
