// Package past compares what keepwatch serve --history answers with recorded answers of a real kube-apiserver.
package past

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

var (
	seed    = flag.Uint64("past.seed", 0, "the seed of a run that printed it; 0 draws one")
	lists   = flag.Int("past.lists", 0, "how many lists are recorded; 0 is 120 with -short, and 1000 without")
	changes = flag.Int("past.changes", 0, "how many writes are replayed; 0 is 800 with -short, and 20000 without")
)

func TestMain(m *testing.M) { peer.Main(m) }

const (
	asJSON     = "application/json"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	asMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// kind is a type that changes.
type kind struct {
	resource string // with its group
	path     string // of its objects in the namespace past
	object   string // with NAME and NUMBER
	change   string // a merge patch, the same
	queries  []string
}

var kinds = []kind{
	{"configmaps", "/api/v1/namespaces/past/configmaps",
		`{"metadata":{"name":"NAME","labels":{"n":"NUMBER"}},"data":{"n":"NUMBER <&>\u2028"}}`,
		`{"metadata":{"labels":{"n":"NUMBER"}},"data":{"mNUMBER":"NAME"}}`, []string{"labelSelector=n%3D3", "limit=4",
			"fieldSelector=metadata.name%3Do3"}},
	{"pods", "/api/v1/namespaces/past/pods",
		`{"metadata":{"name":"NAME"},"spec":{"containers":[{"name":"c","image":"i:NUMBER"}]}}`,
		`{"metadata":{"annotations":{"n":"NUMBER"}},"spec":{"containers":[{"name":"c","image":"i:NUMBER"}]}}`,
		[]string{"fieldSelector=status.phase%3DPending", "fieldSelector=spec.nodeName%3D"}},
	{"services", "/api/v1/namespaces/past/services", `{"metadata":{"name":"NAME"},"spec":{"ports":[{"port":80}]}}`,
		`{"spec":{"selector":{"n":"NUMBER"}}}`, []string{"fieldSelector=spec.type%3DClusterIP"}},
	{"deployments.apps", "/apis/apps/v1/namespaces/past/deployments",
		`{"metadata":{"name":"NAME"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
		`{"spec":{"replicas":NUMBER}}`, []string{"limit=2"}},
	{widgets, "/apis/past.example/v1/namespaces/past/widgets",
		`{"apiVersion":"past.example/v1","kind":"Widget","metadata":{"name":"NAME"},"size":NUMBER,"a":{"z":1,"b":[1.5,"<"]}}`,
		`{"size":NUMBER}`, []string{"limit=3"}},
}

// definition is that of widgets, with a column whose name is given.
const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.past.example"},"spec":{
	"group":"past.example","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
	"additionalPrinterColumns":[{"name":%q,"type":"integer","jsonPath":".size"}],
	"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// widgets are a type whose definition changes, which may be a gap: the server then begins their history anew.
const widgets = "widgets.past.example"

// rig is a server, and a sync that stores it.
type rig struct {
	*testing.T
	server *peer.Server
	client rest.Interface
	dir    string
	sync   *peer.Process
	random *rand.Rand
	names  map[string]map[string]bool // by path: the objects that exist
}

// TestPast changes objects of five types at random, records lists, kills the sync, and lets the server forget what it
// has missed. Afterwards, the history answers each list at its revision with the bytes of the server, or refuses it in
// the gap.
func TestPast(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	count := *lists
	if count == 0 {
		count = 1000
		if testing.Short() {
			count = 120
		}
	}
	t.Logf("-past.seed %d -past.lists %d", *seed, count)
	server := peer.LatestKubernetes(t)
	client, err := rest.UnversionedRESTClientFor(raw(server.Config()))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, server: server, client: client, dir: t.TempDir(), random: rand.New(rand.NewPCG(*seed, 1)),
		names: map[string]map[string]bool{}}
	r.must(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"past"}}`)
	r.must(http.MethodPost, "/api/v1/namespaces/past/serviceaccounts", `{"metadata":{"name":"default"}}`)
	r.must(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(definition, "Size"))
	r.until("widgets are served", func() bool {
		code, _ := r.send(http.MethodGet, kinds[4].path, "", asJSON)
		return code == http.StatusOK
	})
	r.startSync("synced at", allTypes())
	var all []recorded
	for len(all) < count*2/3 {
		r.change()
		all = append(all, r.record())
		if r.random.IntN(40) == 0 { // a crash without a loss
			r.sync.Kill()
			r.startSync("synced at", allTypes())
		}
		if len(all) == count/3 {
			r.must(http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.past.example", `{"spec":`+
				strings.SplitN(fmt.Sprintf(definition, "Bigness"), `"spec":`, 2)[1])
		}
	}
	r.markAll("before")
	r.sync.Kill()
	gap := len(all)
	for len(all) < count*5/6 {
		r.change()
		all = append(all, r.record())
	}
	if _, err := server.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil { // it has what etcd has forgotten
		t.Fatal(err)
	}
	gapEnd := len(all)
	r.startSync("synced at", allTypes())
	for len(all) < count {
		r.change()
		all = append(all, r.record())
	}
	r.markAll("after")
	r.judge(all, gap, gapEnd)
}

// recorded is a list that the server has answered.
type recorded struct {
	kind         kind
	path, accept string
	body         []byte
	revision     string
}

// record lists a type at random.
func (r *rig) record() recorded {
	r.Helper()
	k := kinds[r.random.IntN(len(kinds))]
	query := ""
	if r.random.IntN(2) == 0 {
		query = "?" + k.queries[r.random.IntN(len(k.queries))]
	}
	l := recorded{kind: k, path: k.path + query, accept: []string{asJSON, asJSON, asTable, asMetadata}[r.random.IntN(4)]}
	var code int
	code, l.body = r.send(http.MethodGet, l.path, "", l.accept)
	var about metav1.PartialObjectMetadataList
	if err := json.Unmarshal(l.body, &about); err != nil || code != http.StatusOK {
		r.Fatalf("%s: %d, %s, %v", l.path, code, l.body, err)
	}
	l.revision = about.ResourceVersion
	return l
}

// change creates, changes or deletes an object at random.
func (r *rig) change() {
	r.Helper()
	k := kinds[r.random.IntN(len(kinds))]
	name, number := fmt.Sprintf("o%d", r.random.IntN(8)), r.random.IntN(9)
	exists := r.names[k.path]
	if exists == nil {
		exists = map[string]bool{}
		r.names[k.path] = exists
	}
	switch {
	case !exists[name]:
		r.must(http.MethodPost, k.path, fill(k.object, name, number))
		exists[name] = true
	case r.random.IntN(4) == 0:
		r.must(http.MethodDelete, k.path+"/"+name, `{"gracePeriodSeconds":0}`)
		exists[name] = false
	default:
		r.must(http.MethodPatch, k.path+"/"+name, fill(k.change, name, number))
	}
}

// fill returns a text with a name and a number.
func fill(text, name string, number int) string {
	return strings.NewReplacer("NAME", name, "NUMBER", fmt.Sprint(number)).Replace(text)
}

// markAll creates an object of each type, and waits until the history has it.
func (r *rig) markAll(name string) {
	r.Helper()
	for _, k := range kinds {
		r.must(http.MethodPost, k.path, fill(k.object, name, 1))
	}
	for _, k := range kinds {
		r.until(k.resource+" are stored", func() bool {
			out, code := r.keepwatch("history", "log", k.resource+"/"+name, "-n", "past", "--from", r.database())
			return code == 0 && strings.Contains(out, "ADDED")
		})
	}
}

func (r *rig) database() string { return "sqlite:" + filepath.Join(r.dir, "state.db") }

// keepwatch runs a command to its end.
func (r *rig) keepwatch(args ...string) (out string, code int) {
	r.Helper()
	file, err := os.CreateTemp(r.dir, "out")
	if err != nil {
		r.Fatal(err)
	}
	defer file.Close()
	p, err := peer.Start(peer.Command{Path: peer.Keepwatch(r), Args: args, Stdout: file, Log: filepath.Join(r.dir,
		"commands")})
	if err != nil {
		r.Fatal(err)
	}
	code = p.ExitCode()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		r.Fatal(err)
	}
	return string(text), code
}

// start starts a command, and waits for a text in what it prints.
func (r *rig) start(want string, args ...string) *peer.Process {
	r.Helper()
	log := filepath.Join(r.dir, fmt.Sprintf("log%d", r.random.Uint64()))
	p, err := peer.Start(peer.Command{Path: peer.Keepwatch(r), Args: args, Log: log})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(p.Kill)
	r.until(want, func() bool {
		text, _ := os.ReadFile(log) // it is created soon
		return strings.Contains(string(text), want)
	})
	return p
}

// allTypes are those that change, and their definitions.
func allTypes() string {
	types := "customresourcedefinitions.apiextensions.k8s.io"
	for _, k := range kinds {
		types += "," + k.resource
	}
	return types
}

// startSync starts the sync, and waits until it prints a text.
func (r *rig) startSync(want, types string) {
	r.Helper()
	r.sync = r.start(want, "sync", types, "-A", "--to", r.database(), "--kubeconfig", r.server.Kubeconfig(),
		"--cache-dir", r.dir)
}

// differing are what Tables may differ in: ages depend on the time of the answer, and the server describes some columns
// in other words.
var differing = regexp.MustCompile(`"(\d+[smhd])+"|"description":"[^"]*"`)

// token is a continue token: kube-apiserver has two ways to write one, of its watch cache and of etcd.
var token = regexp.MustCompile(`"continue":"[^"]+"`)

// judge compares each list with what the history answers.
func (r *rig) judge(all []recorded, gap, gapEnd int) {
	client, err := rest.UnversionedRESTClientFor(raw(r.serveHistory()))
	if err != nil {
		r.Fatal(err)
	}
	equal, refused := 0, 0
	for i, l := range all {
		path := "/revision/" + l.revision + l.path
		code, body := r.request(client, http.MethodGet, path, "", l.accept)
		body, want := token.ReplaceAll(body, []byte(`"continue":"T"`)), token.ReplaceAll(l.body, []byte(`"continue":"T"`))
		if l.accept == asTable {
			body, want = differing.ReplaceAll(body, nil), differing.ReplaceAll(want, nil)
		}
		switch {
		case code == http.StatusGone && (i >= gap-1 && i <= gapEnd || l.kind.resource == widgets) &&
			bytes.Contains(body, []byte("the nearest known moments are")):
			refused++
		case code != http.StatusOK || !bytes.Equal(body, want):
			r.Errorf("list %d, %s as %s at %s: %d\n%.3000s\nwant\n%.3000s", i, l.path, l.accept, l.revision, code, body, want)
			return
		default:
			equal++
		}
	}
	r.Logf("%d lists are equal, %d were refused in the gap", equal, refused)
	if refused == 0 || equal < len(all)/2 {
		r.Error("too little was compared")
	}
}

func (r *rig) until(what string, done func() bool) {
	r.Helper()
	await.True(r, what, done)
}

// must sends a write, which must succeed.
func (r *rig) must(method, path, body string) {
	r.Helper()
	if code, answer := r.send(method, path, body, asJSON); code >= 300 {
		r.Fatalf("%s %s: %d, %s", method, path, code, answer)
	}
}

// raw returns the configuration of a client that decodes nothing, and is not slowed.
func raw(config *rest.Config) *rest.Config {
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.QPS = -1
	return config
}

func (r *rig) send(method, path, body, accept string) (int, []byte) {
	r.Helper()
	return r.request(r.client, method, path, body, accept)
}

// request sends a request, and again after an answer of 429, which names a time: a server whose type has a new
// definition answers so until it can read the type's objects.
func (r *rig) request(client rest.Interface, method, path, body, accept string) (code int, answer []byte) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), await.Deadline)
	defer cancel()
	content := "application/json"
	if method == http.MethodPatch {
		content = "application/merge-patch+json"
	}
	result := client.Verb(method).RequestURI(path).SetHeader("Accept", accept).SetHeader("Content-Type",
		content).Body([]byte(body)).Do(ctx)
	answer, err := result.Raw()
	var status apierrors.APIStatus
	switch {
	case err == nil:
		result.StatusCode(&code)
	case errors.As(err, &status): // the caller judges it
		code = int(status.Status().Code)
	default:
		r.Fatal(err)
	}
	return code, answer
}
