package matrix

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

var (
	lostHistoryRecord = flag.String("matrix.losthistory", "",
		"measure LostHistory for all clients, and write the results into this folder")
	lostHistoryClient = flag.String("matrix.losthistory-client", "",
		"only the clients whose names match this regular expression")
)

// TestLostHistory measures the clients at a kube-apiserver that loses its history, and behind a proxy of it. What a
// client does is no failure.
func TestLostHistory(t *testing.T) {
	if *lostHistoryRecord == "" {
		t.Skip("see make lost-history")
	}
	selected, err := regexp.Compile(*lostHistoryClient)
	if err != nil {
		t.Fatalf("-matrix.losthistory-client: %v", err)
	}
	for _, upstream := range []Upstream{KubeAPIServer, Proxy} {
		server := StartServer(t, upstream)
		server.writeElsewhere(t)
		for _, p := range clients.Programs() {
			if !selected.MatchString(p.Name) {
				continue
			}
			t.Run(string(upstream)+"/"+p.Name, func(t *testing.T) {
				command, err := p.Command()
				if err != nil {
					t.Skipf("%s is NOT measured, it needs %v", p.Name, err)
				}
				server.awaitFollowed(t)
				result := Cell{Client: p.Name, View: p.View, Command: command, Plan: LostHistory, Seed: draw()}.Run(t, server)
				if result.Version, err = p.Version(); err != nil {
					t.Fatal(err)
				}
				t.Logf("%+v", result)
				if err := result.Save(*lostHistoryRecord); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestLostHistoryBehindProxy: behind the proxy a client does not notice that kube-apiserver has lost its history.
func TestLostHistoryBehindProxy(t *testing.T) {
	server := StartServer(t, Proxy)
	server.writeElsewhere(t)
	for _, name := range []string{"client-go RetryWatcher", "keepwatch informer"} {
		p, err := clients.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		command, err := p.Command()
		if err != nil {
			t.Fatal(err)
		}
		server.awaitFollowed(t)
		r := Cell{Client: p.Name, View: p.View, Command: command, Plan: LostHistory, Seed: draw(),
			settle: await.Deadline}.Run(t, server)
		t.Logf("%+v", r)
		if r.Outcome != Right || r.LostFinal > 0 || r.LostDeletes > 0 || r.Lists > 0 {
			t.Errorf("%s is %s, lost %d final states and %d deletions, and listed %d times", r.Client, r.Outcome, r.LostFinal,
				r.LostDeletes, r.Lists)
		}
	}
	server.awaitFollowed(t)
	t.Run("server down", func(t *testing.T) { testServerDown(t, server) })
}

// awaitFollowed waits until the proxy, if there is one, has the newest config map in each encoding, as clients find it
// in a cluster. A watch that begins before is the server's: at first, and for up to half a minute after the server has
// lost its history.
func (s *Server) awaitFollowed(t *testing.T) {
	t.Helper()
	if s.proxy == nil {
		return
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	direct, err := kubernetes.NewForConfig(s.writers)
	must(err)
	written, err := direct.CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "followed-"}}, metav1.CreateOptions{})
	must(err)
	for _, media := range []string{"application/json", runtime.ContentTypeProtobuf} {
		config := rest.CopyConfig(s.config)
		config.ContentType, config.AcceptContentTypes = media, media
		client, err := kubernetes.NewForConfig(config)
		must(err)
		await.True(t, "the proxy has the newest config map as "+media, func() bool {
			before := s.answered(t)
			// it begins with a use
			list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			must(err)
			return s.answered(t) > before && slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool {
				return m.UID == written.UID
			})
		})
	}
}

// answered returns how many requests the proxy has answered from memory.
func (s *Server) answered(t *testing.T) float64 {
	t.Helper()
	m, err := s.proxy.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m.Sum("keepwatch_readpath_answered_total", nil)
}

func TestLostHistoryTable(t *testing.T) {
	dir := t.TempDir()
	for _, r := range []Result{
		{Client: "kopf", Version: "1.2", Upstream: Proxy, Outcome: Right, View: clients.Events},
		{Client: "kopf", Version: "1.2", Upstream: KubeAPIServer, Outcome: Died, ExitCode: 1, Lists: 2,
			Counts: Counts{LostDeletes: 3}, View: clients.Events},
		{Client: "controller-runtime", Version: "v0.25", Upstream: Proxy, Outcome: Hung, View: clients.Events},
	} {
		if err := r.Save(dir); err != nil {
			t.Fatal(err)
		}
	}
	document := filepath.Join(t.TempDir(), "proxy.md")
	if err := os.WriteFile(document, []byte("before\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteLostHistory(dir, document); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Errorf("a document without a place for the table: %v", err)
	}
	if err := os.WriteFile(document, []byte("before\n"+lostHistoryStart+"old\n"+lostHistoryEnd+"after\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteLostHistory(dir, document); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| kopf 1.2 | **died**, exit code 1 | 3 | 2 | right | 0 | 0 |\n",
		"| controller-runtime v0.25 | not measured | |  | **hung** | 0 | 0 |\n",
		"before\n", lostHistoryEnd + "after\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the document has no %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the document has the table from before")
	}
}
