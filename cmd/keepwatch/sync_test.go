package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
	"github.com/keepwatch/keepwatch/stream/sink/sinktest"
)

// TestSync runs the tests that share one server.
func TestSync(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	t.Run("story", func(t *testing.T) { testSyncStory(t, client) })
	t.Run("projections", func(t *testing.T) { testSyncProjections(t, client) })
	t.Run("files", func(t *testing.T) { testSyncFiles(t, client) })
	t.Run("errors", testSyncErrors)
	t.Run("other etcd", testSyncOtherEtcd)
}

// testSyncStory stores two types, and then what has changed while no process followed them.
func testSyncStory(t *testing.T, client kubernetes.Interface) {
	file := filepath.Join(t.TempDir(), "state.db")
	to := "sqlite:" + file
	configMap(t, client, "one", "x")
	configMap(t, client, "two", "x")
	syncOnce(t, "configmaps,namespaces", "-A", "--to", to)
	deleteConfigMap(t, client, "one")
	configMap(t, client, "three", "x")
	stderr := syncOnce(t, "configmaps,namespaces", "-A", "--to", to)
	if !regexp.MustCompile(`^keepwatch: synced at \d+: configmaps 2, namespaces 4\n$`).MatchString(stderr) {
		t.Errorf("stderr is %q", stderr)
	}

	db := openSQLite(t, file)
	if got := query(t, db, `SELECT name FROM current_configmaps ORDER BY name`); !slices.Equal(got,
		[]string{"three", "two"}) {
		t.Errorf("current: %q", got)
	}
	if got := query(t, db,
		`SELECT object -> 'metadata' -> 'labels' ->> 'app' FROM resources WHERE deleted AND name = 'one'`); !slices.Equal(got,
		[]string{"x"}) {
		t.Errorf("the last state of the deleted object: %q", got)
	}
	was := query(t, db, `SELECT valid_from FROM current_configmaps JOIN resources USING (id) WHERE resources.name = 'two'`)
	then := query(t, db,
		fmt.Sprintf(
			`SELECT name FROM resources WHERE resource = 'configmaps' AND valid_from <= %[1]s AND (valid_to IS NULL OR valid_to > %[1]s) ORDER BY name`, was[0]))
	if !slices.Equal(then, []string{"one", "two"}) {
		t.Errorf("as of revision %s: %q", was[0], then)
	}

	code, stdout, stderr := execute(t, "sync", "status", "--to", to)
	if code != 0 ||
		!regexp.MustCompile(
			`(?s)^RESOURCE +NAMESPACE +REVISION.*\nconfigmaps +<all> +\d+ +\d+ +2 +0 +<none> +\S+\nnamespaces .*\n2 of 2: complete at revision \d+\n$`).MatchString(stdout) {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}

	// Other objects, another selection, and a second writer are refused.
	code, _, stderr = execute(t, "sync", "configmaps", "-A", "-l", "app=x", "--to", to, "--until-synced")
	if want := "it has the objects of configmaps in all namespaces of cluster"; code != 1 ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
	writer := startProcess(t, "sync", "configmaps", "-A", "--to", to)
	writer.waitStderr(t, "synced at")
	code, _, stderr = execute(t, "sync", "configmaps", "-A", "--to", to)
	if code != 1 || stderr != "keepwatch: SQLite file "+file+": it is in use by another keepwatch sync\n" {
		t.Errorf("exit %d, %q", code, stderr)
	}

	// A reader sees the changes while they are written; namespaces is not followed any more.
	deleteConfigMap(t, client, "two")
	waitFor(t, func() bool {
		return slices.Equal(query(t, db, `SELECT name FROM current_configmaps`), []string{"three"})
	})
	if _, stdout, _ := execute(t, "sync", "status", "--to", to); !strings.Contains(stdout, "<not followed>") ||
		!strings.Contains(stdout, "1 of 2: complete") {
		t.Error(stdout)
	}
	deleteConfigMap(t, client, "three")
}

// TestSyncElected runs two processes with one Lease: the second one takes over when the first one ends.
func TestSyncElected(t *testing.T) {
	parallel(t)
	newCluster(t)
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	start := func() *process {
		return startProcess(t, "sync", "namespaces", "--to", to, "--leader-elect", "default/sync", "--metrics-bind-address",
			"127.0.0.1:0")
	}
	first := start()
	first.waitStderr(t, "synced at")
	second := start()
	second.waitStderr(t, "waits until it is elected by the Lease default/sync")
	first.end()
	second.waitStderr(t, "synced at") // a second writer of the file would have been refused

	code, _, stderr := execute(t, "sync", "namespaces", "--to", to, "--leader-elect", "nosuch/sync")
	if want := `the Lease nosuch/sync: namespaces "nosuch" not found`; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
	third := startProcess(t, "sync", "namespaces", "--to", to, "--leader-elect", "default/sync", "--server",
		"http://127.0.0.1:1")
	third.waitStderr(t, "connection refused; retrying")
}

// syncOnce runs keepwatch sync until it is synced, and returns its stderr.
func syncOnce(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := execute(t, append([]string{"sync", "--until-synced"}, args...)...)
	if code != 0 || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	return stderr
}

// testSyncFiles writes two types, and then what has changed while no process followed them.
func testSyncFiles(t *testing.T, client kubernetes.Interface) {
	dir := filepath.Join(t.TempDir(), "changes")
	to := "files:" + dir
	configMap(t, client, "one", "x")
	syncOnce(t, "configmaps,namespaces", "-A", "--to", to, "--redact", "metadata.labels.app")
	configMap(t, client, "two", "x")
	deleteConfigMap(t, client, "one")
	syncOnce(t, "configmaps,namespaces", "-A", "--to", to, "--redact", "metadata.labels.app")
	text, err := os.ReadFile(filepath.Join(dir, "0000000001.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	fold := &sinktest.Fold{}
	fold.AddAll(text)
	rows, err := fold.Current(t.Context(), 0)
	names := map[string]bool{}
	for _, r := range rows {
		names[r.Resource+" "+r.Name] = true
	}
	if err != nil || !names["configmaps two"] || names["configmaps one"] || !names["namespaces default"] {
		t.Errorf("%v, %v", names, err)
	}
	if problems, err := fold.Invariants(t.Context()); err != nil || len(problems) > 0 || fold.Repeated > 0 {
		t.Errorf("%q, %v, %d repeated", problems, err, fold.Repeated)
	}
	if lines := strings.Count(string(text), `"type":"DELETED"`); lines != 1 ||
		strings.Contains(string(text), `"app":"x"`) || !strings.Contains(string(text), `"app":"REDACTED"`) {
		t.Errorf("%d deletions: %s", lines, text)
	}
	code, stdout, stderr := execute(t, "sync", "status", "--to", to)
	if code != 0 || !strings.Contains(stdout, "2 of 2: complete at revision") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	code, _, stderr = execute(t, "sync", "configmaps", "-n", "default", "--to", to, "--until-synced")
	if want := "configmaps: it has these objects already, of another choice of namespaces"; code != 1 ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
	deleteConfigMap(t, client, "two")
}

// openSQLite opens a file that a process may open or close meanwhile: SQLite locks it for these moments, and a reader
// waits.
func openSQLite(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", file, await.Deadline.Milliseconds()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// query returns the first column of a query.
func query(t *testing.T, db *sql.DB, text string) (values []string) {
	t.Helper()
	rows, err := db.Query(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	await.True(t, "the state that the test waits for", done)
}

// testSyncProjections checks that only the selected parts of objects reach the file, and no secret value.
func testSyncProjections(t *testing.T, client kubernetes.Interface) {
	const password = "cGFzc3dvcmQ="
	copies := map[string]string{corev1.LastAppliedConfigAnnotation: password, "example.com/any": password}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: copies},
		Data: map[string][]byte{"p": []byte("password")}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	configMap(t, client, "projected", "x")
	defer deleteConfigMap(t, client, "projected")
	dir := t.TempDir()
	file, settings := filepath.Join(dir, "state.db"), filepath.Join(dir, "sync.yaml")
	text := fmt.Sprintf(`
to: sqlite:%s
resources:
- {resource: secrets, namespace: default, redact: [data.*], drop: [managedFields]}
- {resource: configmaps, namespace: default, fields: [metadata.labels]}
- {resource: configmaps, namespace: kube-system, metadataOnly: true}
`, file)
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := execute(t, "sync", "-f", settings); code != 2 ||
		!strings.Contains(stderr, "sync.yaml: resources[0]: secrets are stored only with --include-secrets") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	syncOnce(t, "-f", settings, "--include-secrets")
	db := openSQLite(t, file)
	if got := query(t, db, `SELECT object -> 'data' ->> 'p' FROM current_secrets WHERE name = 's'`); !slices.Equal(got,
		[]string{"REDACTED"}) {
		t.Errorf("the redacted value is %q", got)
	}
	if got := query(t, db,
		`SELECT object -> 'metadata' ->> 'labels' || (object -> 'metadata' ->> 'managedFields' IS NULL) FROM current_configmaps WHERE name = 'projected'`); !slices.Equal(got, []string{`{"app":"x"}1`}) {
		t.Errorf("the selected fields are %q", got)
	}
	for i, setting := range []string{"--metadata-only", "--fields=metadata", "--redact=data.*"} {
		syncOnce(t, "secrets", "-n", "default", "--include-secrets", setting, "--to", fmt.Sprintf("sqlite:%s/%d.db", dir, i))
		// and its state
		syncOnce(t, "secrets", "-n", "default", "--include-secrets", setting, "--to", fmt.Sprintf("files:%s/%d", dir, i))
	}
	found := 0
	if err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == settings {
			return err
		}
		found++
		if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), password) {
			t.Errorf("%s has the password, or %v", name, err)
		}
		if info, err := entry.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		return nil
	}); err != nil || found < 20 {
		t.Errorf("%d files, %v", found, err)
	}
}

func testSyncErrors(t *testing.T) {
	dir := t.TempDir()
	to := "--to=sqlite:" + filepath.Join(dir, "x.db")
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("this is no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code int
		args []string
		want string
	}{
		{1, []string{"nonsense", "-A", to}, `nonsense: the server doesn't have a resource type "nonsense"`},
		{2, []string{"secrets", "-A", to}, "secrets are stored only with --include-secrets"},
		{2, []string{"configmaps,cm", "-A", to}, "cm: configmaps of these namespaces are stored already"},
		{1, []string{"configmaps", "-A", "--to=sqlite:" + text}, "file is not a database"},
		{1, []string{"configmaps", "-A", "--to=sqlite:" + filepath.Join(dir, "none", "x.db")}, "no such file or directory"},
		{2, []string{"configmaps", "-A", to, "--metrics-bind-address=nonsense"}, "--metrics-bind-address: "},
		{1, []string{"status", "--to=sqlite:" + filepath.Join(dir, "none.db")},
			"there is no such file: give the one that keepwatch sync writes"},
		{1, []string{"status", "--to=sqlite:" + text}, "file is not a database"},
	} {
		code, stdout, stderr := execute(t, append([]string{"sync"}, tt.args...)...)
		if code != tt.code || stdout != "" || !strings.Contains(strings.Split(stderr, "\n")[0], tt.want) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q, want %q", tt.args, code, stdout, stderr, tt.want)
		}
	}
}

// TestSyncUsage checks errors that precede any request.
func TestSyncUsage(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "sync.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const to = "--to=sqlite:x.db"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "give the types of the resources, for example pods,deployments.apps, or a file with -f"},
		{[]string{"pods"}, "give the database with --to"},
		{[]string{"pods", "services", to}, "give the types as one argument, for example pods,services"},
		{[]string{"pods,", to}, ": the resource type is missing"},
		{[]string{"pods/a", to}, "give types and not objects"},
		{[]string{"pods", "--to=mysql://u:secret@h/d"},
			"must be sqlite:FILE, postgres://USER@HOST/DATABASE, files:DIRECTORY, https://HOST/PATH, kafka://HOST/TOPICS or nats://HOST/STREAM"},
		{[]string{"pods", "--to=kafka://u:secret@h"}, "the address needs the topics"},
		{[]string{"pods", "--to=kafka://h/k8s.{resource}", "--shape=avro"},
			`the shape must be events or debezium, not "avro"`},
		{[]string{"pods", "--to=kafka://h/k8s.{resource}?shape=debezium", "--shape=events"}, "give one of them"},
		{[]string{"pods", "--to=nats://h/?kv=b", "--shape=events"}, "a bucket has no shape"},
		{[]string{"*.example.com/a", to}, "give types and not objects"},
		{[]string{"-f", file("# pods\n---\nto: sqlite:x.db\nresources: [{resource: pods}]\n---\nresources: [{resource: nodes}]")},
			"it has several YAML documents: give one, with all resources"},
		{[]string{"-f", file("---\n# none\n---\nto: sqlite:x.db\n")}, ": resources is empty"},
		{[]string{"-f", "-"}, "-: resources is empty"},
		{[]string{"pods*", to}, `"pods*" is no pattern: *.GROUP, for example *.example.com`},
		{[]string{"w*.example.com", to}, "is no pattern"},
		{[]string{"pods", "--to=nats://u:secret@h"}, "the address needs a stream"},
		{[]string{"pods", "--to=nats://h/S", "--retention=1h"}, "--retention is not for nats: its settings are --shape"},
		{[]string{"pods", "--to=sqlite:"}, "needs the path of a file"},
		{[]string{"pods", to, "--fields", "a[?(@.b)]"}, `pods: path "a[?(@.b)]": at "[?(@.b)]"`},
		{[]string{"pods", to, "--metadata-only", "--fields", "data"}, `pods: path "data": only metadata is requested`},
		{[]string{"pods", to, "--redact", ""}, `pods: path "" is empty`},
		{[]string{"pods", to, "--drop", "status"}, `only managedFields can be dropped, not "status"`},
		{[]string{"pods", to, "-l", "a=b=c"}, `pods: selector "a=b=c"`},
		{[]string{"pods", to, "--field-selector", "a"}, `fieldSelector "a"`},
		{[]string{"pods", to, "--retention=-1s"}, `invalid argument "-1s" for "--retention" flag: "-1s" is negative`},
		{[]string{"pods", "--to=files:"}, "needs the path of a directory"},
		{[]string{"pods", "--to=files:d", "--shape=avro"}, `the shape must be events or debezium, not "avro"`},
		{[]string{"pods", "--to=files:d", "--compress=lz4"}, `the compression must be none, gzip or zstd, not "lz4"`},
		{[]string{"pods", "--to=files:d", "--rotate-size=-1"}, `the size of files: "-1" is not a size above zero`},
		{[]string{"pods", "--to=files:d", "--rotate-age=-1s"}, `"-1s" is negative`},
		{[]string{"pods", "--to=files:d", "--retention=1h"},
			"--retention is not for files: its settings are --state, --shape"},
		{[]string{"pods", "--to=https://u:secret@h"}, "give the directory for the cursors with --state"},
		{[]string{"pods", "--to=https://u:secret@h:x/", "--state=d"}, "--to: the address must be https://HOST/PATH"},
		{[]string{"pods", "--to=https://h/", "--state=d", "--mode=bulk"},
			`the mode must be structured, binary or batched, not "bulk"`},
		{[]string{"pods", "--to=https://h/", "--state=d", "--compress=gzip"},
			"--compress is not for https: its settings are --state, --shape, --mode"},
		{[]string{"pods", "--to=https://h/", "--state=d", "--signing-key=" + file("c2hvcnQ=")},
			"must have 24 bytes or more in base64"},
		{[]string{"pods", "--to=https://h/", "--state=d", "--signing-key=none"}, "--signing-key: open none"},
		{[]string{"pods", to, "--compress=zstd"},
			"--compress is not for sqlite: its settings are --retention, --thin, --max-size"},
		{[]string{"pods", to, "--thin=7d"},
			`invalid argument "7d" for "--thin" flag: give AGE:INTERVAL: 7d:1h retains one state an hour after 7 days`},
		{[]string{"pods", to, "--thin=7d:soon"}, `for "--thin" flag: give AGE:INTERVAL`},
		{[]string{"pods", to, "--thin=7d:1s"}, `for "--thin" flag: the interval 1s is less than a minute`},
		{[]string{"pods", to, "--thin=30m:1h"}, `for "--thin" flag: the age 30m0s is less than the interval 1h0m0s`},
		{[]string{"pods", to, "--thin=7d:1h,7d:1d"}, `the age 168h0m0s must be greater than 168h0m0s, the one before it`},
		{[]string{"pods", to, "--thin=7d:2h,30d:3h"}, `the interval 3h0m0s must be a multiple of 2h0m0s, the one before it`},
		{[]string{"pods", to, "--retention=90d,events=7d,events=8d"}, `for "--retention" flag: events has two times`},
		{[]string{"pods", to, "--retention=90d,30d"}, `for "--retention" flag: all types have two times: give one`},
		{[]string{"pods", to, "--retention=90d,*=7d"}, `"*" is no type: give for example deployments.apps=365d`},
		{[]string{"pods", to, "--thin=7d:1h", "--retention=7d"},
			"--retention 168h0m0s deletes states before --thin thins them out, after 168h0m0s"},
		{[]string{"pods", "--to=postgres://h/d", "--thin=7d:1h", "--retention=1d"},
			"--retention 24h0m0s deletes states before --thin thins them out"},
		{[]string{"pods", "--to=nats://h/S", "--thin=7d:1h"}, "--thin is not for nats: its settings are --shape"},
		{[]string{"-f", file("to: sqlite:x.db\nthin: 7d\nresources: [{resource: pods}]")},
			`sync.yaml: thin: "7d": give AGE:INTERVAL`},
		{[]string{"pods", to, "--max-size=0"}, `the size of a database: "0" is not a size above zero, such as 512Mi or 2Gi`},
		{[]string{"pods", to, "--max-size=512m"}, `"512m" is not a whole number of bytes: give for example 512Mi`},
		{[]string{"pods", "--to=files:d", "--rotate-size=256m"}, `the size of files: "256m" is not a whole number of bytes`},
		{[]string{"pods", "--to=postgres://h/d", "--max-size=much"},
			`the size of a database: "much" is not a size above zero, such as 512Mi or 2Gi`},
		{[]string{"pods", "--to=files:d", "--max-size=1Gi"},
			"--max-size is not for files: its settings are --state, --shape"},
		{[]string{"pods", to, "--state=d"}, "--state is not for sqlite"},
		{[]string{"pods", to, "--idle-timeout=0"}, "--idle-timeout must be more than 0"},
		{[]string{"pods", to, "--leader-elect=sync"}, `--leader-elect must be NAMESPACE/NAME of a Lease, not "sync"`},
		{[]string{"pods", to, "--max-lag=0"}, "--max-lag must be more than 0"},
		{[]string{"pods", to, "-f", file("")}, "with -f, the file has the types"},
		{[]string{"-f", file("to: sqlite:x.db")}, "sync.yaml: resources is empty"},
		{[]string{"-f", file("resources: [{resource: pods}]")}, "give the database with --to"},
		{[]string{"-f", file("to: sqlite:x.db\nresources: [{resource: pods, selektor: a}]")},
			`unknown field "resources[0].selektor"`},
		{[]string{"-f", file("to: sqlite:x.db\nresources: [{resource: pods}, {selector: a}]")},
			"sync.yaml: resources[1]: the resource type is missing"},
		{[]string{"-f", file("to: sqlite:x.db\nresources: [{resource: pods, redact: ['a..b']}]")},
			`sync.yaml: resources[0]: path "a..b": at "..b"`},
		{[]string{"-f", file("to: sqlite:x.db\nretention: soon\nresources: [{resource: pods}]")},
			`sync.yaml: retention: "soon": time: invalid duration "soon": give a time such as 90d`},
		{[]string{"-f", file("to: [x")}, "sync.yaml: yaml: line 1"},
		{[]string{"-f", file("sinks: [{to: 'sqlite:a.db'}]\nto: sqlite:b.db\nresources: [{resource: pods}]")},
			"the file has sinks: each of them has its own name, to"},
		{[]string{"-f", file("sinks: [{to: 'sqlite:a.db'}]\nretention: 1h\nresources: [{resource: pods}]")},
			"the file has sinks: each of them"},
		{[]string{to, "-f", file("sinks: [{to: 'sqlite:a.db'}]\nresources: [{resource: pods}]")},
			"has sinks: remove --to and --state from the command line"},
		{[]string{"-f", file("sinks: [{to: 'sqlite:a.db'}, {state: d}]\nresources: [{resource: pods}]")},
			"sinks[1]: to is missing: sqlite:FILE"},
		{[]string{"-f", file("sinks: [{to: 'sqlite:a.db'}, {to: 'files:d', compress: lz4}]\nresources: [{resource: pods}]")},
			"sinks[1]: the compression must be none, gzip or zstd"},
		{[]string{"-f", file("sinks: [{to: 'sqlite:a.db'}, {to: 'sqlite:b.db'}]\nresources: [{resource: pods}]")},
			"sinks[1]: sinks[0] has the name sqlite, too: give one of them another name"},
		{[]string{"-f",
			file("sinks: [{to: 'postgres://u:secret@h/d'}, {name: other, to: 'postgres://u:secret@h/d'}]\nresources: [{resource: pods}]")}, "sinks[1]: sinks[0] has the same to"},
		{[]string{"-f",
			file("sinks: [{to: 'files:d/a'}, {name: other, to: 'files:./d/b/../a'}]\nresources: [{resource: pods}]")},
			"sinks[1]: sinks[0] has the same to"},
		{[]string{"-f",
			file("sinks: [{to: 'files:a', state: s}, {to: 'https://h/', state: ./s}]\nresources: [{resource: pods}]")},
			"sinks[1]: sinks[0] has the state directory ./s, too"},
		{[]string{"-f", file("sinks: [{name: 'a b', to: 'sqlite:a.db'}]\nresources: [{resource: pods}]")},
			`sinks[0]: name "a b": a lowercase`},
		{[]string{"status", "-f", file("sinks: [{to: 'sqlite:a.db'}, {}]\nresources: [{resource: pods}]")},
			"sinks[1]: to is missing"},
		{[]string{"*,*", to}, "*: * of these namespaces are stored already: give each pattern once"},
		{[]string{"-f", file("to: sqlite:x.db\nresources: [{resource: '*.a.b', namespace: c}, {resource: '*.a.b'}]")},
			"sync.yaml: resources[1]: *.a.b of these namespaces are stored already"},
		{[]string{"status"}, "give the database with --to"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := execute(t, append([]string{"sync"}, tt.args...)...)
			first, rest, _ := strings.Cut(stderr, "\n")
			if code != 2 || stdout != "" || !strings.Contains(first, tt.want) || strings.Contains(stderr, "secret@") ||
				!strings.HasPrefix(rest, "See 'keepwatch sync ") {
				t.Errorf("exit %d, stdout %q, stderr %q, want exit 2 and one sentence with %q", code, stdout, stderr, tt.want)
			}
		})
	}
	if code, _, stderr := execute(t, "sync", "-f", "none.yaml"); code != 2 || !strings.Contains(stderr, "open none.yaml") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// TestSyncEndpoint reads the metrics and the readiness of a process.
func TestSyncEndpoint(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	address := child.Address(t)
	p := startProcess(t, "sync", "configmaps,namespaces", "-A", "--to", "sqlite:"+filepath.Join(t.TempDir(), "x.db"),
		"--max-size", "1", "--metrics-bind-address", address)
	p.waitStderr(t, "more than --max-size: no history is left, and the database grows")
	p.waitStderr(t, "synced at")
	configMap(t, client, "counted", "x")
	defer deleteConfigMap(t, client, "counted")
	waitFor(t, func() bool { // the sink has its first list a moment before its watches are live
		code, text := httpGet(t, address, "/readyz")
		return code == 200 && text == "ok\n"
	})
	waitFor(t, func() bool {
		_, text := httpGet(t, address, "/metrics")
		for _, want := range []string{
			`keepwatch_sync_events_total{namespace="",resource="configmaps",sink="sqlite",type="ADDED"} 1`,
			`keepwatch_sync_objects{namespace="",resource="namespaces",sink="sqlite"} 4`,
			`keepwatch_sync_complete{line="0",sink="sqlite"} 1`,
			`keepwatch_sync_complete_revision{line="0",sink="sqlite"} `,
			`keepwatch_sync_gaps_total{namespace="",reason="expired",resource="configmaps",sink="sqlite"} 0`,
			`keepwatch_sync_lag_seconds{namespace="",resource="configmaps",sink="sqlite"} `,
			`keepwatch_sync_retries_total{sink="sqlite"} 0`,
			`keepwatch_sync_dead_letters_total{sink="sqlite"} 0`,
			`keepwatch_sync_expired_states_total{reason="age",sink="sqlite"} 0`,
			`keepwatch_sync_expired_states_total{reason="size",sink="sqlite"} `,
			`keepwatch_sync_expired_states_total{reason="thinning",sink="sqlite"} 0`,
			`keepwatch_sync_excess_bytes{sink="sqlite"} `, `keepwatch_sync_clock_behind_seconds{sink="sqlite"} 0`,
		} {
			if !strings.Contains(text, want) {
				return false
			}
		}
		return true
	})
}

// testSyncOtherEtcd says that a type is in another etcd: it is complete on its own.
func testSyncOtherEtcd(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sync.yaml")
	text := fmt.Sprintf(
		"to: sqlite:%s/state.db\nresources: [{resource: namespaces}, {resource: configmaps, otherEtcd: true}, {resource: secrets, metadataOnly: true}]", dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if stderr := syncOnce(t, "-f", file, "--include-secrets"); strings.Count(stderr, "synced at") != 2 {
		t.Error(stderr)
	}
	got := query(t, openSQLite(t, filepath.Join(dir, "state.db")),
		`SELECT resource || ' ' || line FROM cursors ORDER BY resource`)
	if want := []string{"configmaps 1", "namespaces 0", "secrets 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSyncSinks stores in three sinks of one file: one that is down holds up no other one, and one that ends, ends all.
func TestSyncSinks(t *testing.T) {
	parallel(t)
	client, _ := newCluster(t)
	dir, address := t.TempDir(), child.Address(t)
	var code atomic.Int64 // that the receiver answers
	code.Store(http.StatusServiceUnavailable)
	fold := &sinktest.Fold{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		answer := int(code.Load())
		var event struct{ Data json.RawMessage }
		if err := json.NewDecoder(request.Body).Decode(&event); err != nil {
			t.Error(err)
		}
		if answer == http.StatusUnprocessableEntity && !bytes.Contains(event.Data, []byte(`"unwanted"`)) {
			answer = http.StatusOK // it refuses one object only
		}
		if answer == http.StatusOK {
			fold.Add(event.Data)
		}
		w.WriteHeader(answer)
	}))
	defer receiver.Close()
	file := filepath.Join(dir, "sync.yaml")
	text := fmt.Sprintf(`
sinks:
- to: sqlite:%[1]s/state.db
- {name: archive, to: "files:%[1]s/changes", compress: gzip}
- {to: "%[2]s", state: "%[1]s/state"}
resources: [{resource: configmaps}, {resource: namespaces}]
`, dir, receiver.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	configMap(t, client, "shared", "x")
	p := startProcess(t, "sync", "-f", file, "--metrics-bind-address", address)
	p.waitStderr(t, "keepwatch: sqlite: synced at")
	p.waitStderr(t, "keepwatch: archive: synced at")
	p.waitStderr(t, "keepwatch: http: "+receiver.URL)
	waitFor(t, func() bool { // a sink has its first list a moment before its watches are live
		status, text := httpGet(t, address, "/readyz")
		return status == 500 && strings.HasPrefix(text, "http: ")
	})
	deleteConfigMap(t, client, "shared")
	db := openSQLite(t, filepath.Join(dir, "state.db"))
	waitFor(t, func() bool {
		return slices.Equal(query(t, db, `SELECT name FROM resources WHERE deleted`), []string{"shared"})
	})
	code.Store(http.StatusOK)
	p.waitStderr(t, "keepwatch: http: synced at")
	waitFor(t, func() bool { status, _ := httpGet(t, address, "/readyz"); return status == 200 })
	_, metrics := httpGet(t, address, "/metrics")
	for _, want := range []string{
		`keepwatch_sync_events_total{namespace="",resource="configmaps",sink="sqlite",type="DELETED"} 1`,
		`keepwatch_sync_objects{namespace="",resource="namespaces",sink="archive"} 4`,
		`keepwatch_sync_objects{namespace="",resource="namespaces",sink="http"} 4`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("%s is missing in %s", want, metrics)
		}
	}
	if problems, err := fold.Invariants(t.Context()); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	retries := sample(t, metrics, `keepwatch_sync_retries_total{sink="http"}`)
	code.Store(http.StatusUnprocessableEntity)
	configMap(t, client, "unwanted", "x")
	p.waitStderr(t, "keepwatch: http: "+receiver.URL+" refuses event")
	code.Store(http.StatusOK)
	deleteConfigMap(t, client, "unwanted")
	_, metrics = httpGet(t, address, "/metrics")
	if dead := sample(t, metrics, `keepwatch_sync_dead_letters_total{sink="http"}`); dead != "1" || retries == "0" {
		t.Errorf("%s dead letters, %s retries", dead, retries)
	}
	if after := sample(t, metrics, `keepwatch_sync_retries_total{sink="http"}`); after != retries {
		t.Errorf("%s retries, %s before the dead letter", after, retries)
	}
	p.end()
	exit, stdout, stderr := execute(t, "sync", "status", "-f", file)
	if exit != 0 ||
		!regexp.MustCompile(
			`(?s)^sqlite:\nRESOURCE.*\n2 of 2: complete.*\n\narchive:\nRESOURCE.*\n2 of 2: complete.*\n\nhttp:\nRESOURCE.*\n2 of 2: complete at revision \d+\n$`).MatchString(stdout) {
		t.Errorf("exit %d, %s%s", exit, stdout, stderr)
	}
	if stderr := syncOnce(t, "-f", file); strings.Count(stderr, "synced at") != 3 {
		t.Error(stderr)
	}

	code.Store(http.StatusGone)
	p = startProcess(t, "sync", "-f", file)
	configMap(t, client, "last", "x")
	defer deleteConfigMap(t, client, "last")
	if code := p.exit(t); code != 1 || !regexp.MustCompile(`(?m)^keepwatch: http: .*410`).MatchString(p.stderr.String()) {
		t.Errorf("exit %d: %s", code, p.stderr)
	}
}

// sample returns the value of a series in the text of /metrics.
func sample(t *testing.T, metrics, series string) string {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	t.Fatalf("%s is missing in %s", series, metrics)
	return ""
}

func httpGet(t *testing.T, address, path string) (code int, text string) {
	t.Helper()
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}
