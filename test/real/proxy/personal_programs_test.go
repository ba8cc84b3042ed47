package proxy

import (
	"context"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

// personalProgram is the unmodified client of another project as a process that follows the config maps of a personal
// view. It believes that they are those of one namespace.
type personalProgram struct {
	name    string
	start   func() (*clients.Process, error)
	process *clients.Process
	starts  int

	mu     sync.Mutex
	synced bool
	failed string            // the last error that it has shown, with its time
	fold   map[string]string // "UID/revision" by name
	asked  []*exchange       // its last requests
}

// exchange is a request of a program.
type exchange struct {
	began, ended time.Time // ended is zero while it is answered
	url          string
	code         int // zero before the answer begins
}

func (e *exchange) String() string {
	end := "open"
	if !e.ended.IsZero() {
		end = e.ended.UTC().Format(time.TimeOnly)
	}
	return fmt.Sprintf("%s to %s: %d %s", e.began.UTC().Format(time.TimeOnly), end, e.code, e.url)
}

// everything is the namespace that programs follow. On the way to the proxy it becomes all namespaces.
const everything = "everything"

// programLateness bounds how long after a revocation a program may show an object: its process waits for a processor,
// too.
const programLateness = time.Minute

// Clients in other languages that follow personal views while bindings, namespaces and objects change, the replicas and
// the server restart, and the clients move from one replica to the other, have in the end what the server lists to
// their users namespace by namespace, and receive nothing that their users were not allowed.
func TestPersonalPrograms(t *testing.T) {
	t.Parallel()
	seed := *personalSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-proxy.personal-seed %d", seed)
	o := newOnlookers(t, rand.New(rand.NewPCG(seed, 45)), 3, peer.Kubernetes(t),
		func(string, string) bool { return false })
	o.programs()
	for i := range *personalSteps {
		o.step()
		if i%40 == 39 {
			o.settle(i)
		}
		o.disturb(i)
	}
	o.settle(*personalSteps)
	for _, u := range o.all {
		if u.program != nil {
			t.Logf("%s was started %d times", u.program.name, u.program.starts)
		}
	}
}

// judgedInViews are the programs that TestPersonalPrograms runs. kopf is not among them: it has no cache, and shows no
// deletion that a list hides, as after a restart of the proxy. Nor is fabric8 4.13.3: a thread of it ends at a 503, and
// it never watches again.
var judgedInViews = []string{"client-go informer", "client-go RetryWatcher", "python Watch", "python SharedInformer",
	"@kubernetes/client-node", "fabric8 7.9.0", "Java informer", "kube-rs watcher"}

// programs starts the selected programs that this machine can run, each for a user of its own, who may always read one
// namespace: some of the programs end when the server refuses them.
func (o *onlookers) programs() {
	o.Helper()
	selected, err := regexp.Compile(*programFlag)
	o.must(err)
	for _, namespace := range o.namespaces { // informers show nothing of an empty list
		o.must2(o.admin.CoreV1().ConfigMaps(namespace).Create(o.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-m0"}}, metav1.CreateOptions{}))
	}
	for i, p := range clients.Programs() {
		if !slices.Contains(judgedInViews, p.Name) || !selected.MatchString(p.Name) {
			continue
		}
		command, err := p.Command()
		if err != nil {
			o.Logf("%s is NOT tested, it needs %v", p.Name, err)
			continue
		}
		u := o.onlooker(fmt.Sprint("program-", i))
		u.home = o.namespaces[i%4]
		o.grant(u, u.home)
		token := o.tokenOf(u.name)
		u.direct = o.directly(token)
		dir := o.TempDir()
		kubeconfig := filepath.Join(dir, "kubeconfig")
		u.program = &personalProgram{name: p.Name, start: func() (*clients.Process, error) {
			return clients.Start(command, kubeconfig, everything, dir, func(l clients.Line) { o.shows(u, l) })
		}}
		config := o.widened(u.program)
		config.BearerToken = token
		o.must(peer.WriteKubeconfig(kubeconfig, config))
		o.supervise(u.program)
		o.all = append(o.all, u)
	}
	for _, u := range o.all {
		if u.program != nil {
			await.True(o, u.program.name+" has a first answer", u.program.begun, u.program.log)
		}
	}
}

// supervise starts a program that does not run: some end at an error of a server that restarts, as the programs of
// their users would.
func (o *onlookers) supervise(p *personalProgram) {
	o.Helper()
	if p.process != nil && p.process.Err() == nil {
		return
	}
	p.mu.Lock()
	if p.process != nil && p.failed == "" {
		o.Errorf("%s: %v", p.name, p.process.Err())
	}
	p.fold, p.failed = map[string]string{}, ""
	p.mu.Unlock()
	var err error
	p.process, err = p.start()
	o.must(err)
	p.starts++
	o.Cleanup(p.process.End)
}

// widened returns the configuration of a balancer of reverse proxies, one of each replica, that turn the requests of a
// program for one namespace into those for all. They have TLS: clients send no token without. The balancer is on the
// side of the program: a reverse proxy that loses the connection of a WebSocket ends TLS with its client, and not the
// connection, and fabric8 waits.
func (o *onlookers) widened(p *personalProgram) *rest.Config {
	config := &rest.Config{}
	var hosts []string
	for _, to := range o.fronts {
		s := httptest.NewTLSServer(o.widening(p, to))
		o.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		hosts = append(hosts, s.URL) // all servers of httptest have one certificate
		config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	b := newBalancer(o.TB, hosts...)
	o.balancers = append(o.balancers, b)
	config.Host = b.url
	return config
}

// widening is the handler of a reverse proxy of a replica.
func (o *onlookers) widening(p *personalProgram, to *front) http.HandlerFunc {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(to.Config()))
	o.must(err)
	target, err := url.Parse(to.server.URL)
	o.must(err)
	type asking struct{}
	between := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(target)
			q.Out.URL.Path = strings.Replace(q.Out.URL.Path, "/namespaces/"+everything+"/", "/", 1)
		},
		ModifyResponse: func(answer *http.Response) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			answer.Request.Context().Value(asking{}).(*exchange).code = answer.StatusCode
			return nil
		}}
	return func(w http.ResponseWriter, q *http.Request) {
		e := &exchange{began: time.Now(), url: q.URL.RequestURI()}
		p.mu.Lock()
		p.asked = append(p.asked[max(0, len(p.asked)-9):], e)
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			e.ended = time.Now()
		}()
		between.ServeHTTP(w, q.WithContext(context.WithValue(q.Context(), asking{}, e)))
	}
}

// shows records what a program shows.
func (o *onlookers) shows(u *onlooker, l clients.Line) {
	states := map[string]string{}
	switch l.Type {
	case "ADDED", "MODIFIED":
		states[l.Name] = l.UID + "/" + l.Revision
	case "LISTED":
		states = l.Objects
	}
	for name := range states {
		o.judge(u, name[:max(0, strings.LastIndex(name, "-m"))], name, programLateness)
	}
	p := u.program
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = p.synced || l.Type != "ERROR"
	switch l.Type {
	case "ERROR":
		p.failed = time.Now().UTC().Format(time.TimeOnly) + " " + l.Message
	case "LISTED":
		clear(p.fold)
	case "DELETED":
		delete(p.fold, l.Name)
	}
	for name, state := range states {
		p.fold[name] = state
	}
}

func (p *personalProgram) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// log returns the last error that the program has shown, what it has written to stderr, and its last requests.
func (p *personalProgram) log() string {
	text, _ := os.ReadFile(p.process.Log)
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%s\n%s\n%v", p.failed, text, p.asked)
}

// has returns what the program's user has, as name@revision.
func (p *personalProgram) has() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, state := range p.fold {
		_, revision, _ := strings.Cut(state, "/")
		all = append(all, name+"@"+revision)
	}
	return all
}
