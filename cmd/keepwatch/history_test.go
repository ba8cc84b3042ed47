package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch"
	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
	"github.com/keepwatch/keepwatch/server/past/fork"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// TestHistory runs the tests that share one server.
func TestHistory(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	t.Run("story", func(t *testing.T) { testHistoryStory(t, client) })
	t.Run("recorded", func(t *testing.T) { testHistoryRecorded(t, client) })
	t.Run("not followed", func(t *testing.T) { testHistoryNotFollowed(t, client) })
	t.Run("page", func(t *testing.T) { testPastPage(t, client) })
	t.Run("quick start", testHistoryQuickStart)
}

// patch changes the data of a ConfigMap in the name of a manager, and returns its revision.
func patch(t *testing.T, client kubernetes.Interface, name, manager, key, value string) string {
	t.Helper()
	body := fmt.Sprintf(`{"data":{%q:%q}}`, key, value)
	o, err := client.CoreV1().ConfigMaps("default").Patch(t.Context(), name, types.MergePatchType, []byte(body),
		metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	return o.ResourceVersion
}

// look runs keepwatch history, which must succeed.
func look(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := execute(t, append([]string{"history"}, args...)...)
	if code != 0 {
		t.Fatalf("%v: exit %d, %s", args, code, stderr)
	}
	return stdout, stderr
}

// mustMatch checks a text, in which times are replaced by T.
func mustMatch(t *testing.T, text, pattern string) {
	t.Helper()
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ?([+-]\d\d:\d\d)?`).ReplaceAllString(text, "T")
	if !regexp.MustCompile(`^` + strings.TrimPrefix(pattern, "\n") + `$`).MatchString(text) {
		t.Errorf("got:\n%s\nwant:%s", text, pattern)
	}
}

// testHistoryStory looks back at an object of the first list that two managers change and nobody knows deletes, and
// at one that changes while no process follows.
func testHistoryStory(t *testing.T, client kubernetes.Interface) {
	file := filepath.Join(t.TempDir(), "state.db")
	to := "sqlite:" + file
	configMap(t, client, "story", "x")
	sync := startProcess(t, "sync", "configmaps,namespaces", "-A", "--to", to)
	sync.waitStderr(t, "synced at")
	first := patch(t, client, "story", "alice", "color", "green")
	second := patch(t, client, "story", "bob", "color", "red")
	patch(t, client, "story", "bob", "size", "7")
	waitFor(t, func() bool {
		out, _ := look(t, "log", "cm/story", "--from", to)
		return strings.Count(out, "MODIFIED") == 3
	})
	out, _ := look(t, "blame", "configmap", "story", "--from", to)
	mustMatch(t, out, `
SINCE +TIME +MANAGERS +FIELD +VALUE +WAS *
`+second+` +T +bob +data.color +"red" +"green" *
\d+ +T +bob +data.size +"7" *
<=\d+ +T +\S+ +metadata.labels.app +"x" *
`)
	out, stderr := look(t, "diff", "cm", "--at", "revision/"+first, "--and", "revision/"+second, "--from", to)
	mustMatch(t, out, `
--- configmaps/story -n default\trevision `+first+`, T
\+\+\+ configmaps/story -n default\trevision `+second+`, T
@@ -1,6 \+1,6 @@
 apiVersion: v1
 data:
-  color: green
\+  color: red
 kind: ConfigMap
 metadata:
(   .*\n)*`)
	if stderr != "" {
		t.Error(stderr)
	}
	deleteConfigMap(t, client, "story")
	waitFor(t, func() bool {
		out, _ := look(t, "log", "cm/story", "--from", to)
		return strings.Contains(out, "DELETED")
	})
	out, _ = look(t, "log", "cm/story", "--from", to)
	mustMatch(t, out, `
REVISION +TIME +EVENT +GENERATION +MANAGERS +FIELDS *
\d+ +T +EXISTED *
`+first+` +T +MODIFIED +alice +data.color *
`+second+` +T +MODIFIED +bob +data.color *
\d+ +T +MODIFIED +bob +data.size *
\d+ +T +DELETED +<not recorded> *
`)
	if _, stderr := look(t, "blame", "cm/story", "--from", to); !strings.Contains(stderr,
		"configmaps/story -n default was deleted at revision ") {
		t.Errorf("blame of a deleted object: %q", stderr)
	}
	out, _ = look(t, "diff", "cm/story", "--at", "revision/"+second, "--from", to, "-o", "fields")
	mustMatch(t, out, "DELETED configmaps/default/story revision "+second+" > <none>\n")
	configMap(t, client, "late", "x")
	waitFor(t, func() bool {
		code, _, _ := execute(t, "history", "log", "cm/late", "--from", to)
		return code == 0
	})
	for args, want := range map[string]string{ // exit code, and stderr
		"diff cm/late --and revision/" + second:          `0 keepwatch: configmaps/late -n default did not exist at the moments`,
		"diff cm/typo":                                   `1 keepwatch: the history has no configmaps named typo in namespace default, from .*`,
		"blame cm/typo":                                  `1 keepwatch: the history has no configmaps named typo in namespace default, from .*`,
		"diff cm/story -o json --and revision/" + second: `0 `,
	} {
		command := append(append([]string{"history"}, strings.Fields(args)...), "--at", "revision/"+first, "--from", to)
		if strings.Contains(args, "cm/story") {
			command[len(command)-3] = "revision/" + second
		}
		code, _, stderr := execute(t, command...)
		if got := fmt.Sprint(code, " ", strings.TrimSpace(stderr)); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("%s: %s", args, got)
		}
	}
	code, _, stderr := execute(t, "history", "blame", "cm/late", "--at", "revision/"+first, "--from", to)
	if code != 1 || !strings.Contains(stderr,
		"configmaps/late -n default did not exist until that moment: the first state in the history is of revision ") {
		t.Errorf("blame before the creation: exit %d, %s", code, stderr)
	}
	out, _ = look(t, "diff", "cm/story", "--at", "now", "--and", "revision/"+second, "--from", to, "-o", "json")
	var compared struct{ Objects []lookback.ComparedObject }
	if err := json.Unmarshal([]byte(out), &compared); err != nil || len(compared.Objects) != 1 ||
		compared.Objects[0].Type != history.Added {
		t.Errorf("backward: %s, %v", out, err)
	}
	for until, want := range map[string]string{"": "MODIFIED MODIFIED DELETED", "revision/" + second: "MODIFIED"} {
		out, _ = look(t, "log", "-A", "--since", "revision/"+first, "--until", until, "--from", to, "-o", "json")
		var log struct{ Events []lookback.LoggedEvent }
		if err := json.Unmarshal([]byte(out), &log); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var kinds []string
		last := keepwatch.Revision(0)
		for _, e := range log.Events {
			if e.Revision < last {
				t.Errorf("revision %d follows %d", e.Revision, last)
			}
			if last = e.Revision; e.Resource == "configmaps" && e.Name == "story" {
				kinds = append(kinds, string(e.Type))
			}
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("all types until %q: %s, want %s", until, got, want)
		}
	}
	if out, _ = look(t, "log", "-n", "default", "--since", "revision/"+first, "--from", to); !regexp.MustCompile(
		`(?m)^` + second + ` +\S+ +MODIFIED +configmaps/default/story +bob +data.color *$`).MatchString(out) {
		t.Errorf("all types: %s", out)
	}
	for _, since := range []string{"now", "-1s", "revision/" + second} { // now is behind all
		look(t, "log", "cm", "--since", since, "--until", "now", "--from", to)
	}
	look(t, "log", "cm", "--since", "revision/"+second, "--until", "revision/"+second, "--from", to)
	for _, output := range []string{"json", "yaml", "text"} {
		if out, _ = look(t, "log", "cm", "--since", "now", "--from", to, "-o", output); strings.Contains(out, "MODIFIED") {
			t.Errorf("since now: %s", out)
		}
	}
	out, _ = look(t, "log", "cm", "--from", to, "-o", "yaml")
	if !strings.Contains(out, "- manager: bob") && !strings.Contains(out, "manager: bob") ||
		!strings.Contains(out, `path: data.color`) {
		t.Error(out)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sync.end()
	look(t, "log", "cm", "-A", "--from", to)
	look(t, "diff", "cm", "-A", "--at", "revision/"+first, "--and", "revision/"+first, "--from", to)
	after, err := os.ReadFile(file)
	if err != nil || len(before) > len(after) {
		t.Errorf("the file: %v", err)
	}
	look(t, "log", "cm", "-A", "--from", to)
	if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, after) {
		t.Errorf("reading has changed the file: %v", err)
	}
}

// testHistoryRecorded compares the states of a history with lists of the server at the same revisions.
func testHistoryRecorded(t *testing.T, client *kubernetes.Clientset) {
	file := filepath.Join(t.TempDir(), "state.db")
	for i := range 20 {
		configMap(t, client, fmt.Sprintf("r%d", i), "x")
	}
	startProcess(t, "sync", "configmaps", "-A", "--to", "sqlite:"+file).waitStderr(t, "synced at")
	list := func() (body []byte, revision keepwatch.Revision) {
		body, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/configmaps").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var about metav1.PartialObjectMetadataList
		if err = json.Unmarshal(body, &about); err == nil {
			revision, err = keepwatch.ParseRevision(about.ResourceVersion)
		}
		if err != nil {
			t.Fatal(err)
		}
		return body, revision
	}
	recorded := map[keepwatch.Revision][]byte{}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		name := fmt.Sprintf("r%d", random.IntN(20))
		_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case err != nil:
			configMap(t, client, name, "y")
		case random.IntN(3) == 0:
			deleteConfigMap(t, client, name)
		default:
			patch(t, client, name, "m", "i", fmt.Sprint(i))
		}
		body, revision := list()
		recorded[revision] = body
	}
	configMap(t, client, "r-last", "x") // a deletion is stored with the next revision
	last, err := keepwatch.ParseRevision(patch(t, client, "r-last", "m", "i", "last"))
	if err != nil {
		t.Fatal(err)
	}
	database, err := sqlite.OpenHistory(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	past := history.New(database, history.Options{Known: fork.KnownType})
	in := func(read func(*history.View, sink.Status) error) {
		t.Helper()
		err := past.View(t.Context(), func(v *history.View) error {
			of, err := v.StreamOf("configmaps", "")
			if err != nil {
				return err
			}
			return read(v, of)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() (reached bool) {
		in(func(_ *history.View, of sink.Status) error {
			reached = of.Progress.Cursor >= last
			return nil
		})
		return reached
	})
	in(func(v *history.View, of sink.Status) error {
		for revision, body := range recorded {
			points, err := v.Points(t.Context(), history.Moment{Revision: revision}, false, of)
			if err != nil {
				return err
			}
			states, err := v.At(t.Context(), history.Objects{Resource: "configmaps"}, points.Of(of))
			if err != nil {
				return err
			}
			var want struct{ Items []json.RawMessage }
			if err := json.Unmarshal(body, &want); err != nil {
				return err
			}
			if len(states) != len(want.Items) {
				t.Errorf("revision %d: %d objects, want %d", revision, len(states), len(want.Items))
				continue
			}
			for i, s := range states {
				if !bytes.HasSuffix(s.Object, want.Items[i][1:]) { // which has no kind
					t.Errorf("revision %d, %s:\n%s\nwant\n%s", revision, s.Key, s.Object, want.Items[i])
				}
			}
		}
		return nil
	})
}

// testHistoryNotFollowed compares all types, one of which is not followed any more.
func testHistoryNotFollowed(t *testing.T, client kubernetes.Interface) {
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	configMap(t, client, "followed", "x")
	sync := startProcess(t, "sync", "configmaps,namespaces", "-A", "--to", to)
	sync.waitStderr(t, "synced at")
	first := patch(t, client, "followed", "m", "color", "green")
	stored(t, to, "cm/followed", "default", first)
	sync.Process.Kill()
	sync.exit(t)
	second := patch(t, client, "followed", "m", "color", "red")
	syncOnce(t, "configmaps", "-A", "--to", to)
	out, stderr := look(t, "diff", "-A", "--at", "revision/"+first, "-o", "fields", "--from", to)
	if want := "MODIFIED configmaps/default/followed revision " + first + " > " + second; !strings.Contains(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if want := "keepwatch: not compared, since not followed at both moments: 1 types (namespaces, …)\n"; stderr != want {
		t.Errorf("stderr has %q, want %q", stderr, want)
	}
	code, _, stderr := execute(t, "history", "restore", "configmaps,namespaces", "-A", "--at", "now", "--dry-run",
		"--from", to)
	if code == 0 || !strings.Contains(stderr, "namespaces: the history ends before revision") {
		t.Errorf("a restore of the newest state: exit %d, %s", code, stderr)
	}
}

// TestHistoryErrors checks that each mistake is one line, and names what to do.
func TestHistoryErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "state.db")
	to := "sqlite:" + file
	storeMaps(t, sqlite.New(file, sqlite.Options{}), func() {})
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		code int
		args string
		want string
	}{
		"no database": {2, "log cm", "give the database with --from"},
		"another sink": {2, "log cm --from kafka://host/topic",
			"the database of a history must be sqlite:FILE or postgres://"},
		"a relative URL": {2, "log cm --from sqlite://state.db", "the database of a history must be"},
		"no file":        {1, "log cm --from sqlite:" + dir + "/none", "no such file"},
		"a directory":    {1, "log cm --from sqlite:" + dir, "it is a directory"},
		"text":           {1, "log cm --from sqlite:" + text, "file is not a database"},
		"no server":      {1, "log cm --from postgres://127.0.0.1:1/x", "connect"},
		"no type":        {2, "log --from " + to, "give the type"},
		"the wrong order": {2, "log cm --since -15m --until -30m --from " + to,
			"--until -30m is before --since -15m: nothing is between them"},
		"the wrong order of revisions": {2, "log cm --since now --until revision/1 --from " + to,
			"--until revision/1 is before --since now"},
		"before now": {2, "log -A --since now --until -30m --from " + to, "--until -30m is before --since now"},
		"a time before a revision": {2, "log cm --since revision/999999999 --until -30m --from " + to,
			"--until -30m is before --since revision/999999999"},
		"all types":    {2, "log * --from " + to, "for all types the moment to begin with: --since -15m"},
		"unknown type": {1, "log pods --from " + to, `the history has no resource type "pods", only configmaps, events`},
		"unknown object": {1, "log cm/nothing --from " + to,
			"the history has no configmaps named nothing in namespace default, from revision"},
		"no namespace":    {1, "log cm -n nowhere --from " + to, "the history has no configmaps in namespace nowhere"},
		"a name and -A":   {2, "log cm/one -A --from " + to, "a name can't be combined with all namespaces"},
		"an output":       {2, "log cm -o wide --from " + to, "--output must be text, json, yaml"},
		"no object":       {2, "blame cm --from " + to, "give an object: cm/NAME"},
		"no moment":       {2, "diff cm --from " + to, "give the moment to compare with"},
		"nonsense":        {2, "diff cm --at yesterday --from " + to, `--at: moment "yesterday": give`},
		"the future":      {2, "diff cm --at 2999-01-01T00:00:00Z --from " + to, "is in the future"},
		"before":          {1, "diff cm --at revision/1 --from " + to, "the first known moment is revision"},
		"before, by time": {1, "diff cm --at -1d --from " + to, "the first known moment is revision"},
		"after":           {1, "blame cm/one --at revision/99999999 --from " + to, "the last known moment is revision"},
		"several objects": {2, "log cm a b --from " + to, "a stream has one resource type"},
	} {
		code, stdout, stderr := execute(t, append([]string{"history"}, strings.Fields(row.args)...)...)
		// wrong usage has a line about --help
		if code != row.code || stdout != "" || !strings.Contains(stderr, row.want) ||
			strings.Count(stderr, "\n") != row.code {
			t.Errorf("%s: exit %d, %q%q, want %q", name, code, stdout, stderr, row.want)
		}
	}
}

// testHistoryQuickStart runs the commands of the quick start in docs/history.md.
func testHistoryQuickStart(t *testing.T) {
	page, err := os.ReadFile("../../docs/history.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("\n## Quick start\n"))
	page, _, _ = bytes.Cut(page, []byte("\n## "))
	pastKubectl(t, "create", "deployment", "web", "--image=nginx:1.27")
	setenv(t, "KEEPWATCH_TEST_DIR="+t.TempDir())
	out := "" // of all commands
	revision := ""
	for _, found := range regexp.MustCompile(`(?m)^    \$ (\S+) (.*)$`).FindAllSubmatch(page, -1) {
		program, line := string(found[1]), strings.ReplaceAll(string(found[2]), "revision/74", "revision/"+revision)
		line, background := strings.CutSuffix(line, " &")
		args := strings.Fields(strings.ReplaceAll(line, "'", ""))
		switch {
		case program == "kubectl":
			out += pastKubectl(t, args...)
		case background && args[0] == "serve":
			startProcess(t, append(args, "--listen", "127.0.0.1:0")...).waitStderr(t, "at/MOMENT")
		case background:
			sync := startProcess(t, args...)
			sync.waitStderr(t, "objects of")
			revision = regexp.MustCompile(`synced at (\d+)`).FindStringSubmatch(sync.stderr.String())[1]
			pastKubectl(t, "get", "deployments") // of the cluster
		default:
			waitFor(t, func() bool {
				_, log, _ := execute(t, "history", "log", "deployment/web", "--from", "sqlite:state.db")
				return strings.Contains(log, "containers[name=nginx].image")
			})
			code, stdout, stderr := execute(t, args...)
			if code != 0 {
				t.Fatalf("%s: exit %d, %s", line, code, stderr)
			}
			out += stdout
		}
	}
	for _, want := range []string{
		`kubectl-set`, `-      - image: nginx:1\.27`, `\+      - image: nginx:1\.28`, `"nginx:1\.28" +"nginx:1\.27"`,
		`web .* nginx +nginx:1\.27 +app=web`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}
