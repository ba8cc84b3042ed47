// Package past compares what keepwatch serve --history answers with recorded answers of a real kube-apiserver.
package past

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
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

// widgets are a type whose definition changes.
const widgets = "widgets.past.example"

// rig is a server, and databases that store its history.
type rig struct {
	*testing.T
	server *peer.Server
	client rest.Interface
	dir    string
	stores []*store
	random *rand.Rand
	names  map[string]map[string]bool // by path: the objects that exist
}

// store is a database, the sync that fills it, and a server of its history.
type store struct {
	database string
	exact    bool // it has the bytes of the server, and not its values alone
	sync     *peer.Process
	past     rest.Interface
}

// TestPast changes objects of five types at random, from several clients, and records lists, their second pages, and
// single objects. Meanwhile it kills the syncs, changes a definition, lets the server forget what the syncs have
// missed, and restores etcd. The history answers each request with the bytes of the server, from Postgres with its
// values, or refuses it in a gap.
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
	part := (count + 11) / 12
	r := startRig(t, *seed)
	r.startSyncs()
	r.markAll("first")
	for _, s := range r.stores {
		var err error
		if s.past, err = rest.UnversionedRESTClientFor(raw(r.serveHistory(s.database))); err != nil {
			t.Fatal(err)
		}
	}
	stop := r.writeBeside(2)
	defer stop()
	all := r.storm(4 * part)
	some, redefined := r.redefine(part)
	all = append(append(all, some...), r.storm(2*part)...)
	some, known := r.miss(2 * part)
	known.redefined = redefined
	all = append(append(all, some...), r.storm(part)...)

	saved, restore := r.snapshot()
	all = append(all, r.storm(part)...)
	r.markAll("undone")
	moment := time.Now().UTC().Format(time.RFC3339Nano)
	r.markAll("later") // the moment is known: it is before the last transaction of each type
	r.until("a start of the server writes less", func() bool { return r.revision() > saved+300 })
	stop()
	r.judge(all, "", known)

	r.killSyncs() // one whose server has passed its revision again before it asks cannot notice the restore
	restored := restore()
	r.startSyncs()
	r.markAll("restored")
	r.judge(all, moment, known)
	known = knowledge{lost: span{0, restored - 1}, uncertain: span{0, r.revision()}}
	all = r.storm(part)
	r.markAll("after")
	r.judge(all, "", known)
}

// startRig starts a server with five types, and names the databases.
func startRig(t *testing.T, seed uint64) *rig {
	t.Helper()
	server := peer.LatestKubernetes(t)
	client, err := rest.UnversionedRESTClientFor(raw(server.Config()))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, server: server, client: client, dir: t.TempDir(), random: rand.New(rand.NewPCG(seed, 1)),
		names: map[string]map[string]bool{}}
	r.must(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"past"}}`)
	r.must(http.MethodPost, "/api/v1/namespaces/past/serviceaccounts", `{"metadata":{"name":"default"}}`)
	r.must(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(definition, "Size"))
	r.until("widgets are served", func() bool {
		code, _ := r.send(http.MethodGet, kinds[4].path, "", asJSON)
		return code == http.StatusOK
	})
	r.stores = []*store{{database: r.database(), exact: true}}
	switch missing := pgtest.Missing(); {
	case testing.Short():
	case missing != "":
		t.Run("Postgres", func(t *testing.T) { t.Skip(missing) })
	default:
		r.stores = append(r.stores, &store{database: pgtest.Start(t).URL("past")})
	}
	return r
}

// redefine changes the definition of widgets, and records n lists. Up to the returned revisions the history may have
// gaps of widgets: the server forgets their changes, and a sync that notices the new definition lists them.
func (r *rig) redefine(n int) (all []recorded, gaps span) {
	r.Helper()
	gaps.after = r.revision()
	r.markAll("older")
	r.must(http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.past.example", `{"spec":`+
		strings.SplitN(fmt.Sprintf(definition, "Bigness"), `"spec":`, 2)[1])
	r.until("the new column is served", func() bool {
		_, body := r.send(http.MethodGet, kinds[4].path, "", asTable)
		return strings.Contains(string(body), "Bigness")
	})
	all = r.storm(n)
	r.killSyncs()
	r.startSyncs() // these compare the definition at once
	r.markAll("newer")
	gaps.upTo = r.revision()
	return all, gaps
}

// miss records n lists while no sync runs, and the server forgets what they are of.
func (r *rig) miss(n int) (all []recorded, known knowledge) {
	r.Helper()
	stored := r.revision()
	r.markAll("before")
	r.killSyncs()
	killed := r.revision()
	all = r.record(n)
	compacted, err := r.server.Compact(r.Context())
	if err == nil {
		err = r.server.Restart(r.Context()) // it has what etcd has forgotten
	}
	if err != nil {
		r.Fatal(err)
	}
	r.startSyncs()
	r.markAll("found")
	return all, knowledge{lost: span{killed, compacted - 1}, uncertain: span{stored, r.revision()}}
}

// snapshot saves etcd at a revision. restore kills the server, restores etcd, and returns the revision of the server
// that is started then.
func (r *rig) snapshot() (saved int64, restore func() int64) {
	r.Helper()
	file := filepath.Join(r.dir, "snapshot")
	saved, err := r.server.Etcd().Snapshot(r.Context(), file)
	if err != nil {
		r.Fatal(err)
	}
	names := map[string]map[string]bool{}
	for path, of := range r.names {
		names[path] = maps.Clone(of)
	}
	return saved, func() int64 {
		r.Helper()
		r.server.Kill()
		err := errors.Join(r.server.Etcd().RestoreSnapshot(r.Context(), file), r.server.Restart(r.Context()))
		if err != nil {
			r.Fatal(err)
		}
		r.names = names
		return r.revision()
	}
}

// storm records n lists, while the syncs are killed without a loss.
func (r *rig) storm(n int) (all []recorded) {
	r.Helper()
	for range n {
		all = append(all, r.record(1)...)
		if r.random.IntN(40) == 0 {
			r.killSyncs()
			r.startSyncs()
		}
	}
	return all
}

// writeBeside creates, changes and deletes ConfigMaps of its own from several clients until stop is called.
func (r *rig) writeBeside(clients int) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var writers sync.WaitGroup
	for w := range clients {
		writers.Go(func() {
			pace := time.NewTicker(100 * time.Millisecond)
			defer pace.Stop()
			for i := 0; ctx.Err() == nil; i++ {
				<-pace.C
				name := fmt.Sprintf("beside-%d-%d", w, i%7)
				for _, step := range []struct{ method, path, body string }{
					{http.MethodPost, "", fill(kinds[0].object, name, i)},
					{http.MethodPatch, "/" + name, fill(kinds[0].change, name, i)},
					{http.MethodDelete, "/" + name, ""},
				} {
					// It fails while the server is down.
					_ = request(r.client, step.method, kinds[0].path+step.path, step.body, asJSON).Do(ctx).Error()
				}
			}
		})
	}
	return func() { cancel(); writers.Wait() }
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

// markAll creates an object of each type, and waits until each history has it.
func (r *rig) markAll(name string) {
	r.Helper()
	for _, k := range kinds {
		r.must(http.MethodPost, k.path, fill(k.object, name, 1))
	}
	for _, s := range r.stores {
		for _, k := range kinds {
			r.until(k.resource+" are stored in "+s.database, func() bool {
				out, code := r.keepwatch("history", "log", k.resource+"/"+name, "-n", "past", "--from", s.database)
				return code == 0 && (strings.Contains(out, "ADDED") || strings.Contains(out, "EXISTED"))
			})
		}
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

// startSync starts a sync into a database, and waits until it prints a text.
func (r *rig) startSync(types, database, want string) *peer.Process {
	r.Helper()
	return r.start(want, "sync", types, "-A", "--to", database, "--kubeconfig", r.server.Kubeconfig(),
		"--cache-dir", r.dir)
}

// startSyncs starts the sync of each store. It does not wait: a type without changes is behind the others for up to a
// minute.
func (r *rig) startSyncs() {
	r.Helper()
	types := "customresourcedefinitions.apiextensions.k8s.io"
	for _, k := range kinds {
		types += "," + k.resource
	}
	for _, s := range r.stores {
		s.sync = r.startSync(types, s.database, "")
	}
}

func (r *rig) killSyncs() {
	for _, s := range r.stores {
		s.sync.Kill()
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
	return r.answer(r.client, method, path, body, accept)
}

// request returns a request that is sent again after an answer of 429, which names a time: a server whose type has a
// new definition answers so until it can read the type's objects.
func request(client rest.Interface, method, path, body, accept string) *rest.Request {
	content := "application/json"
	if method == http.MethodPatch {
		content = "application/merge-patch+json"
	}
	return client.Verb(method).RequestURI(path).SetHeader("Accept", accept).SetHeader("Content-Type",
		content).Body([]byte(body))
}

// answer sends a request, and returns what is answered.
func (r *rig) answer(client rest.Interface, method, path, body, accept string) (code int, answer []byte) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), await.Deadline)
	defer cancel()
	result := request(client, method, path, body, accept).Do(ctx)
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
