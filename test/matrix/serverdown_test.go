package matrix

import (
	"flag"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/judge/faults"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
	"github.com/keepwatch/keepwatch/test/peer"
)

var serverDownClients = flag.String("matrix.serverdown-client", "^python Watch$",
	"the clients that start and watch while the server behind the proxy is down, as a regular expression")

// endsOf503 are the programs that the answer 503 to a list ends, as their client's documentation has it.
var endsOf503 = []string{"python Watch"}

// downClient is a client behind a proxy whose server is down.
type downClient struct {
	name    string
	proxy   *faults.Proxy
	process *clients.Process

	mu   sync.Mutex
	fold fold
}

// testServerDown kills the server behind the proxy. A client that watches notices nothing, also when its connection
// breaks. One that starts receives 503 for its list, or 429 for its streaming list; when the server is back it has the
// state, unless 503 ends it.
func testServerDown(t *testing.T, server *Server) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := newWriter(server.writers, "server-down", draw())
	must(err)
	must(w.prepare(t.Context()))
	watching := startDownClients(t, server, w.namespace)
	for _, c := range watching {
		await.True(t, c.name+" has the initial state", func() bool { return c.state().hasUIDs(w.uids) })
		await.True(t, c.name+" watches", func() bool { return c.watches() > 0 })
	}
	awaitCached(t, server, w, watching)
	before := map[*downClient]int{}
	for _, c := range watching {
		before[c] = c.lists()
	}
	server.stored.Kill()
	for _, c := range watching {
		open := c.watches()
		if c.proxy.Now(faults.Any, configMaps, faults.End) == 0 {
			t.Errorf("%s has no watch that could end", c.name)
		}
		await.True(t, c.name+" watches again while the server is down", func() bool { return c.watches() > open })
	}
	starting := startDownClients(t, server, w.namespace)
	for _, c := range starting {
		await.True(t, c.name+" is refused", func() bool { return c.refused() > 0 })
	}
	for range 20 {
		must(w.one(t.Context()))
	}
	must(server.stored.Restart(t.Context()))
	must(w.last(t.Context()))
	writes, newest, err := server.writes(t.Context(), w.namespace)
	must(err)
	want := stateAt(writes, newest)
	for _, c := range watching {
		await.True(t, c.name+", which has watched, has the state", func() bool { return maps.Equal(c.state(), want) })
		if n := c.lists(); n != before[c] {
			t.Errorf("%s, which has watched, listed %d times more", c.name, n-before[c])
		}
	}
	for _, c := range starting {
		if slices.Contains(endsOf503, c.name) {
			await.True(t, c.name+" has ended", func() bool { return c.process.Err() != nil })
			continue
		}
		await.True(t, c.name+", which has started while the server was down, has the state", func() bool {
			return maps.Equal(c.state(), want)
		})
		t.Logf("%s was refused %d times", c.name, c.refused())
	}
}

// awaitCached writes, and waits until the clients and the proxy have the change: a watch from a revision that the proxy
// has not seen yet is refused while the server is down.
func awaitCached(t *testing.T, server *Server, w *writer, watching []*downClient) {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.config)
	if err == nil {
		err = w.one(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	writes, newest, err := server.writes(t.Context(), w.namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range watching {
		await.True(t, c.name+" has a change", func() bool { return maps.Equal(c.state(), stateAt(writes, newest)) })
	}
	await.True(t, "the proxy has the change", func() bool {
		cached, err := client.CoreV1().ConfigMaps(w.namespace).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		revision, err := keepwatch.ParseRevision(cached.ResourceVersion)
		return err == nil && revision >= writes[len(writes)-1].Revision
	})
}

// startDownClients starts the selected clients that this machine can run, for the duration of the test.
func startDownClients(t *testing.T, server *Server, namespace string) (all []*downClient) {
	t.Helper()
	selected, err := regexp.Compile(*serverDownClients)
	if err != nil {
		t.Fatalf("-matrix.serverdown-client: %v", err)
	}
	for _, p := range clients.Programs() {
		if p.View != clients.Events || !selected.MatchString(p.Name) {
			continue
		}
		command, err := p.Command()
		if err != nil {
			t.Skipf("%s is NOT tested, it needs %v", p.Name, err)
		}
		c := &downClient{name: p.Name, proxy: faults.New(t, server.config, faults.Plan{}), fold: fold{}}
		dir := t.TempDir()
		kubeconfig := filepath.Join(dir, "kubeconfig")
		if err := peer.WriteKubeconfig(kubeconfig, c.proxy.Config()); err != nil {
			t.Fatal(err)
		}
		if c.process, err = clients.Start(command, kubeconfig, namespace, dir, c.receive); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.process.End)
		all = append(all, c)
	}
	return all
}

func (c *downClient) receive(line clients.Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fold.apply(line)
}

func (c *downClient) state() fold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fold)
}

// answered returns how many requests were answered with a status.
func (c *downClient) answered(class faults.Class, code int) (n int) {
	for _, e := range c.proxy.Transcript() {
		if e.Resource == configMaps && e.Class == class && e.Code == code {
			n++
		}
	}
	return n
}

// watches returns how many watches were answered with a stream, or with a WebSocket.
func (c *downClient) watches() int {
	return c.answered(faults.Watch, http.StatusOK) + c.answered(faults.Watch, http.StatusSwitchingProtocols) +
		c.answered(faults.StreamList, http.StatusOK)
}

// refused returns how many lists were answered with 503, or streaming lists with 429.
func (c *downClient) refused() int {
	return c.answered(faults.List, http.StatusServiceUnavailable) + c.answered(faults.StreamList,
		http.StatusTooManyRequests)
}

func (c *downClient) lists() int {
	return c.proxy.Count(faults.List, configMaps) + c.proxy.Count(faults.StreamList, configMaps)
}
