package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/assets"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	lookback "github.com/keepwatch/keepwatch/cmd/keepwatch/internal/history"
	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
)

// pastServer is a server of a history.
type pastServer struct {
	host, kubeconfig string
	client           *http.Client
	process          *process
}

// servePast serves the history of a database.
func servePast(t testing.TB, to string, flags ...string) *pastServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "past.kubeconfig")
	args := append([]string{"serve", "--history", to, "--listen", "127.0.0.1:0", "--kubeconfig-out", file}, flags...)
	p := startProcess(t, args...)
	p.waitStderr(t, "at/MOMENT")
	config := configOf(t, file)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &pastServer{strings.TrimSuffix(config.Host, "/at/now"), file, client, p}
}

// withoutToken returns a client that sends no token.
func (s *pastServer) withoutToken() *http.Client {
	type wrapper interface{ WrappedRoundTripper() http.RoundTripper }
	return &http.Client{Transport: s.client.Transport.(wrapper).WrappedRoundTripper()}
}

// get returns the answer to a GET, with its headers.
func (s *pastServer) get(t *testing.T, path, accept string) (code int, body []byte, header http.Header) {
	t.Helper()
	return fetchBody(t, s.client, s.host+path, accept)
}

func fetchBody(t *testing.T, client *http.Client, address, accept string) (code int, body []byte, header http.Header) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Accept", accept)
	response, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, body, response.Header
}

const (
	acceptJSON     = "application/json"
	acceptTable    = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	acceptMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// recordedList is a list that the server has answered.
type recordedList struct {
	path, accept string
	body         []byte
	revision     string
}

// listPaths are the lists that are recorded: all, of a namespace, with selectors, and pages.
var listPaths = []string{
	"/api/v1/configmaps", "/api/v1/namespaces/default/configmaps", "/api/v1/configmaps?labelSelector=app%3Dy",
	"/api/v1/configmaps?fieldSelector=metadata.name%3Dh3", "/api/v1/namespaces/nowhere/configmaps",
	"/api/v1/configmaps?limit=3",
	"/api/v1/services", "/api/v1/services?fieldSelector=spec.type%3DClusterIP", "/apis/example.com/v1/widgets",
	"/api/v1/configmaps?limit=500",
}

// TestServeHistory records lists of the server while objects of three types change, and compares them with what the
// history answers at their revisions, byte for byte.
func TestServeHistory(t *testing.T) {
	parallel(t)
	client, kubeconfig := newCluster(t)
	config := configOf(t, kubeconfig)
	to := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	live, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	const definition = "customresourcedefinitions.apiextensions.k8s.io"
	post(t, live, config.Host+"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetDefinition)
	waitFor(t, func() bool {
		code, _, _ := fetchBody(t, live, config.Host+"/apis/example.com/v1/widgets", acceptJSON)
		return code == http.StatusOK
	})
	sync := startProcess(t, "sync", "configmaps,services,widgets.example.com,"+definition, "-A", "--to", to)
	sync.waitStderr(t, "synced at")
	first := createMap(t, client, "default", "h-first").ResourceVersion
	random := rand.New(rand.NewPCG(3, 4))
	widgets := config.Host + "/apis/example.com/v1/namespaces/default/widgets"
	var recorded []recordedList
	record := func(path, accept string) {
		code, body, _ := fetchBody(t, live, config.Host+path, accept)
		var about metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &about); code != http.StatusOK || err != nil {
			t.Fatalf("%s: %d, %s, %v", path, code, body, err)
		}
		recorded = append(recorded, recordedList{path, accept, body, about.ResourceVersion})
	}
	for i := range 40 {
		name := fmt.Sprintf("h%d", random.IntN(6))
		switch random.IntN(6) {
		case 0:
			_ = client.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{})
		case 1:
			body := fmt.Sprintf(
				`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w%d","annotations":{"b":"<&>","a":"%d"}},"spec":{"size":%d}}`, i, i, i)
			post(t, live, widgets, body)
		case 2:
			service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
			if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		default:
			data := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "y"}},
				Data: map[string]string{"i": fmt.Sprint(i, "<&>\u2028")}}
			if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), data, metav1.CreateOptions{}); err != nil {
				patch(t, client, name, "m", "i", fmt.Sprint(i))
			}
		}
		record(listPaths[random.IntN(len(listPaths))], acceptJSON)
		record(listPaths[random.IntN(len(listPaths))], []string{acceptJSON, acceptTable, acceptMetadata}[random.IntN(3)])
	}
	post(t, live, widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"last"},"spec":{"size":7}}`)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "last"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	last := createMap(t, client, "default", "h-last").ResourceVersion
	stored(t, to, "cm/h-last", "default", last)
	waitFor(t, func() bool {
		_, out, _ := execute(t, "history", "log", "widgets.example.com/last", "--from", to)
		_, out2, _ := execute(t, "history", "log", "svc/last", "--from", to)
		return strings.Contains(out, "ADDED") && strings.Contains(out2, "ADDED")
	})
	past := servePast(t, to)
	ages := regexp.MustCompile(`"\d+(s|m|h|d|m\d+s)"`)
	exact := 0
	for _, r := range recorded {
		code, body, header := past.get(t, "/at/revision/"+r.revision+r.path, r.accept)
		want := r.body
		if r.accept == acceptTable { // ages depend on the time of the answer
			body, want = ages.ReplaceAll(body, []byte(`"AGE"`)), ages.ReplaceAll(want, []byte(`"AGE"`))
		}
		if code == http.StatusGone && strings.Contains(string(body), "the history ends before revision") {
			continue // another type has this revision, and a sync has not heard of it
		}
		if exact++; code != http.StatusOK || !bytes.Equal(body, want) || !strings.HasPrefix(header.Get("Keepwatch-Moment"),
			"revision="+r.revision) {
			t.Errorf("%s %s at %s: %d\n%s\nwant\n%s", r.path, r.accept, r.revision, code, body, want)
		}
	}
	if exact < len(recorded)/2 {
		t.Errorf("only %d of %d lists were compared", exact, len(recorded))
	}
	t.Run("pages", func(t *testing.T) { testPastPages(t, past, last) })
	t.Run("watches", func(t *testing.T) { testPastWatches(t, past, client, first, last) })
	t.Run("bounds", func(t *testing.T) { testPastBounds(t, to, last) })
	t.Run("refused", func(t *testing.T) { testPastRefused(t, past, first, last) })
	t.Run("contexts", func(t *testing.T) { testPastContexts(t, past, last) })
	t.Run("explain", func(t *testing.T) { testPastExplain(t, past, live, config.Host, to, last) })
	sync.end()
	t.Run("gaps", func(t *testing.T) { testPastGaps(t, strings.TrimPrefix(to, "sqlite:"), first, last) })
}

// testPastGaps refuses moments in a gap, or warns of them, and replays a gap as the difference between its ends.
func testPastGaps(t *testing.T, file, first, last string) {
	db := openSQLite(t, file)
	if _, err := db.Exec(
		`INSERT INTO gaps SELECT 'configmaps', '', 0, ?, ?, 'expired', '2026-11-28 10:00:00.000', NULL, '2026-11-28 10:00:00.000'`, first, last); err != nil {
		t.Fatal(err)
	}
	inGap := query(t, db, `SELECT min(valid_from) FROM resources WHERE resource = 'configmaps' AND valid_from > `+first)[0]
	strict, lenient := servePast(t, "sqlite:"+file), servePast(t, "sqlite:"+file, "--allow-gaps")
	path := "/at/revision/" + inGap + "/api/v1/configmaps"
	code, body, _ := strict.get(t, path, acceptJSON)
	want := fmt.Sprintf(
		"the history between revisions %s and %s is missing (expired); the nearest known moments are revision %s at ", first,
		last, first)
	if code != http.StatusGone || !strings.Contains(string(body), want) {
		t.Errorf("in a gap: %d, %s", code, body)
	}
	for _, end := range []string{first, last} {
		if code, body, _ := strict.get(t, "/at/revision/"+end+"/api/v1/configmaps", acceptJSON); code != http.StatusOK {
			t.Errorf("at its end %s: %d, %s", end, code, body)
		}
	}
	code, body, header := lenient.get(t, path, acceptJSON)
	if code != http.StatusOK || !strings.Contains(header.Get("Warning"), "is missing (expired)") {
		t.Errorf("leniently: %d, %v, %s", code, header, body)
	}
	for _, at := range []string{"2", "99999999"} { // the beginning and the end are no gaps
		if code, body, _ := lenient.get(t, "/at/revision/"+at+"/api/v1/configmaps", acceptJSON); code != http.StatusGone {
			t.Errorf("leniently, at %s: %d, %s", at, code, body)
		}
	}
	_, body, _ = strict.get(t, "/at/revision/"+last+"/api/v1/namespaces/default/configmaps/h-last", acceptJSON)
	var there pastEvent
	if err := json.Unmarshal(body, &there.Object); err != nil {
		t.Fatal(err)
	}
	next := watchPast(t, strict, "/at/revision/"+first+"/speed/0/api/v1/configmaps?watch=1&resourceVersion="+first)
	e := next()
	for e.Type != "ERROR" && e.Object.Name != "h-last" { // what has not changed is not among them
		e = next()
	}
	if e.Type != "ADDED" || e.Object.ResourceVersion != there.Object.ResourceVersion {
		t.Errorf("over the gap: %+v, want %+v", e, there)
	}
}

// widgetDefinition has one column.
const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
	"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget"},"versions":[{
	"name":"v1","served":true,"storage":true,"additionalPrinterColumns":[{"name":"Size","type":"integer","jsonPath":".spec.size"}],
	"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`

// post creates an object.
func post(t *testing.T, client *http.Client, address, body string) {
	t.Helper()
	response, err := client.Post(address, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusCreated {
		t.Fatalf("%d, %s, %v", response.StatusCode, text, err)
	}
}

// testPastPages reads a list in pages at a moment that moves: the pages are of one revision.
func testPastPages(t *testing.T, past *pastServer, last string) {
	_, body, _ := past.get(t, "/at/revision/"+last+"/api/v1/configmaps", acceptJSON)
	var whole metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &whole); err != nil {
		t.Fatal(err)
	}
	var names, want []string
	for _, o := range whole.Items {
		want = append(want, o.Namespace+"/"+o.Name)
	}
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		moment := []string{"revision/" + last, "now", "-0s"}[min(pages, 1)] // only the first page says which
		_, body, _ := past.get(t, "/at/"+moment+"/api/v1/configmaps?limit=2&continue="+url.QueryEscape(token), acceptJSON)
		var page metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &page); err != nil || page.ResourceVersion != last || len(page.Items) > 2 ||
			len(page.Items) == 0 {
			t.Fatalf("%s, %v", body, err)
		}
		for _, o := range page.Items {
			names = append(names, o.Namespace+"/"+o.Name)
		}
		token = page.Continue
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// pastEvent is an event of a watch.
type pastEvent struct {
	Type   string
	Object struct {
		metav1.ObjectMeta `json:"metadata"`
		Data              map[string]string
	}
}

// watchPast opens a watch, and returns its events.
func watchPast(t *testing.T, past *pastServer, path string) func() pastEvent {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, past.host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := past.client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewReader(response.Body)
	return func() (e pastEvent) {
		t.Helper()
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			t.Fatalf("%d, %q, %v", response.StatusCode, line, err)
		}
		return e
	}
}

// testPastWatches folds the events of watches from a moment on: at the end there is the newest state, and what happens
// then arrives.
func testPastWatches(t *testing.T, past *pastServer, client *kubernetes.Clientset, first, last string) {
	state := map[string]string{} // name → resourceVersion
	fold := func(e pastEvent) {
		t.Helper()
		_, has := state[e.Object.Name]
		if has == (e.Type == "ADDED") {
			t.Errorf("%s of %s, which is there: %t", e.Type, e.Object.Name, has)
		}
		if state[e.Object.Name] = e.Object.ResourceVersion; e.Type == "DELETED" {
			delete(state, e.Object.Name)
		}
	}
	_, body, _ := past.get(t, "/at/revision/"+first+"/api/v1/namespaces/default/configmaps", acceptJSON)
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		state[o.Name] = o.ResourceVersion
	}
	next := watchPast(t, past, "/at/revision/"+first+
		"/api/v1/namespaces/default/configmaps?watch=true&speed=0&resourceVersion="+list.ResourceVersion)
	reached := list.ResourceVersion
	for reached != last {
		e := next()
		fold(e)
		reached = e.Object.ResourceVersion
	}
	_, body, _ = past.get(t, "/at/revision/"+last+"/api/v1/namespaces/default/configmaps", acceptJSON)
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list.Items {
		want[o.Name] = o.ResourceVersion
	}
	if !maps.Equal(state, want) {
		t.Errorf("the replay ends at %v, want %v", state, want)
	}
	// With the initial state, in the path, and from now on.
	initial := watchPast(t, past, "/at/revision/"+last+
		"/speed/0/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3Dh-last")
	if e := initial(); e.Type != "ADDED" || e.Object.Name != "h-last" || e.Object.ResourceVersion != last {
		t.Errorf("the initial state: %+v", e)
	}
	now := patch(t, client, "h-last", "m", "live", "yes")
	if e := initial(); e.Type != "MODIFIED" || e.Object.ResourceVersion != now || e.Object.Data["live"] != "yes" {
		t.Errorf("live: %+v", e)
	}
	if e := next(); e.Object.ResourceVersion != now {
		t.Errorf("live, in the replay: %+v", e)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "h-last", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createMap(t, client, "default", "h-later") // a deletion is stored with the next revision
	if e := next(); e.Type != "DELETED" || e.Object.Name != "h-last" || e.Object.ResourceVersion == now {
		t.Errorf("the deletion: %+v", e)
	}
}

// testPastBounds opens more watches than are allowed.
func testPastBounds(t *testing.T, to, last string) {
	past := servePast(t, to, "--max-replays", "2")
	path := "/at/revision/" + last + "/api/v1/configmaps?watch=true&speed=0"
	watch := func() (int, http.Header, func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, past.host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := past.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, func() { cancel(); response.Body.Close() }
	}
	_, _, first := watch()
	_, _, second := watch()
	defer second()
	if code, header, end := watch(); code != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("the third watch: %d, %v", code, header)
	} else {
		end()
	}
	_, text, _ := past.get(t, "/metrics", "*/*")
	for _, want := range []string{"keepwatch_past_replays 2", `keepwatch_past_refused_total{bound="replays"} 1`,
		`keepwatch_past_refused_total{bound="moments"} 0`} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	first()
	waitFor(t, func() bool {
		code, _, end := watch()
		end()
		return code == http.StatusOK
	})
}

// testPastRefused checks what the past does not answer, each with a Status that says why.
func testPastRefused(t *testing.T, past *pastServer, first, last string) {
	at := "/at/revision/" + last
	for name, row := range map[string]struct {
		path string
		code int
		want string
	}{
		"no moment":        {"/api/v1/configmaps", 404, "the paths of this server begin with a moment"},
		"nonsense":         {"/at/yesterday/api/v1/configmaps", 400, "give 2026-11-28T10:42:00Z"},
		"a bad revision":   {"/at/revision/x/api/v1/configmaps", 400, "not a positive decimal number"},
		"the future":       {"/at/2999-01-01T00:00:00Z/api/v1/configmaps", 400, "is in the future"},
		"a later revision": {"/at/revision/99999999/api/v1/configmaps", 410, "the last known moment is revision"},
		"before":           {"/at/revision/2/api/v1/configmaps", 410, "the first known moment is revision"},
		"types before":     {"/at/revision/2/apis", 410, "the first known moment is revision"},
		"before, by time":  {"/at/-2d/api/v1/configmaps", 410, "the first known moment is revision"},
		"another type":     {at + "/api/v1/pods", 404, "the history has no pods"},
		"another version": {at + "/apis/example.com/v2/widgets", 404,
			"the history has no widgets.example.com of version v2"},
		"no object":        {at + "/api/v1/namespaces/default/configmaps/nothing", 404, `configmaps \"nothing\" not found`},
		"a subresource":    {at + "/api/v1/namespaces/default/services/last/status", 404, "no services/status"},
		"a label selector": {at + "/api/v1/configmaps?labelSelector=a%3Db%3Dc", 400, "labelSelector"},
		"a field":          {at + "/api/v1/configmaps?fieldSelector=data.x%3D1", 400, "field label not supported: data.x"},
		"a bad limit":      {at + "/api/v1/configmaps?limit=x", 400, "the parameters are not valid"},
		"a bad token":      {at + "/api/v1/configmaps?continue=x", 400, "the continue token is not valid"},
		"a bad speed":      {at + "/speed/fast/api/v1/configmaps?watch=1", 400, "give a number from 0"},
		"a bad version":    {at + "/api/v1/configmaps?watch=1&resourceVersion=x", 400, "not a positive decimal number"},
		"a path":           {at + "/openapi/v2", 404, "the history has no /openapi/v2"},
		"a group":          {at + "/apis/none.example.com", 404, "the history has no /apis/none.example.com"},
		"an early watch": {"/at/now/api/v1/configmaps?watch=1&resourceVersion=2", 410,
			"the first known moment is revision"},
		"dots":    {"/at/now/../../etc/passwd", 404, ""},
		"nothing": {"/", 404, "the paths of this server begin with a moment"},
	} {
		code, body, header := past.get(t, row.path, acceptJSON)
		if code != row.code || !strings.Contains(string(body), row.want) ||
			!strings.Contains(string(body), `"kind":"Status"`) {
			t.Errorf("%s: %d, %s", name, code, body)
		}
		if code == http.StatusGone && strings.HasSuffix(row.path, "/apis") && !strings.Contains(header.Get("Warning"), row.want) {
			t.Errorf("%s: %v does not warn", name, header) // kubectl prints this
		}
	}
	if code, body, _ := past.get(t, at+"/api/v1/configmaps", "application/yaml"); code != http.StatusNotAcceptable {
		t.Errorf("YAML: %d, %s", code, body)
	}
	if code, body, _ := past.get(t, at+"/api/v1/configmaps",
		"application/vnd.kubernetes.protobuf,application/json"); code != 200 || body[0] != '{' {
		t.Errorf("protobuf or JSON: %d, %.100s", code, body)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		q, err := http.NewRequestWithContext(t.Context(), method, past.host+at+
			"/api/v1/namespaces/default/configmaps/h-first", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := past.client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, response.StatusCode)
		}
	}
	stranger := past.withoutToken()
	if code, body, _ := fetchBody(t, stranger, past.host+at+"/api/v1/configmaps",
		acceptJSON); code != http.StatusUnauthorized {
		t.Errorf("without the token: %d, %s", code, body)
	}
}

// testPastContexts adds a context, and reads its moment with kubectl.
func testPastContexts(t *testing.T, past *pastServer, last string) {
	code, out, stderr := execute(t, "history", "context", "revision/"+last, "--kubeconfig", past.kubeconfig, "--name",
		"then")
	if code != 0 || !strings.Contains(out, `context "then" is revision/`+last) {
		t.Fatalf("exit %d, %s%s", code, out, stderr)
	}
	moment := time.Now().Add(-time.Second).UTC().Format("15:04:05")
	if code, out, stderr := execute(t, "history", "context", moment, "--kubeconfig", past.kubeconfig, "--speed",
		"60"); code != 0 || !strings.Contains(out, "Z: kubectl") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
	config, err := clientcmd.LoadFromFile(past.kubeconfig)
	if err != nil || len(config.Contexts) != 3 || !strings.HasSuffix(config.Clusters[moment].Server, "/speed/60") ||
		!regexp.MustCompile(`/at/\d{4}-\d\d-\d\dT`).MatchString(config.Clusters[moment].Server) {
		t.Errorf("%+v, %v", config, err)
	}
	config.Contexts["then"].Namespace, config.Contexts["then"].AuthInfo = "shop", "somebody"
	config.AuthInfos["somebody"] = config.AuthInfos["now"]
	if err := clientcmd.WriteToFile(*config, past.kubeconfig); err != nil {
		t.Fatal(err)
	}
	kept := func(by string) {
		t.Helper()
		config, err := clientcmd.LoadFromFile(past.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if c := config.Contexts["then"]; c.Cluster != "then" || c.Namespace != "shop" || c.AuthInfo != "somebody" {
			t.Errorf("the context after %s: %+v", by, c)
		}
	}
	if code, _, stderr := execute(t, "history", "context", "revision/"+last, "--kubeconfig", past.kubeconfig, "--name",
		"then"); code != 0 {
		t.Errorf("exit %d, %s", code, stderr)
	}
	kept("history context")
	now := config.Clusters["now"]
	if err := lookback.WriteKubeconfig(past.kubeconfig, strings.TrimSuffix(now.Server, "/at/now"),
		now.CertificateAuthorityData, config.AuthInfos["now"].Token); err != nil {
		t.Error(err)
	}
	kept("serve --history")
	kubectl := pastKubectl(t, "--kubeconfig", past.kubeconfig, "--context", "then", "get", "configmaps", "-n", "default")
	// The newest state of each type: that a quiet one has not changed since, the server confirms about once a minute.
	kubectl += pastKubectl(t, "--kubeconfig", past.kubeconfig, "get", "svc,widgets", "-n", "default")
	if !strings.Contains(kubectl, "\nh-last ") || !strings.Contains(kubectl, "service/last") ||
		!regexp.MustCompile(`NAME +SIZE\n(.*\n)*widget.example.com/last +7\n`).MatchString(kubectl) {
		t.Error(kubectl)
	}
	if code, _, stderr := execute(t, "history", "context", "revision/1", "--kubeconfig", past.kubeconfig); code != 0 {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if out := kubectlExits(t, 1, "--kubeconfig", past.kubeconfig, "--context", "revision/1", "get", "configmaps"); !strings.Contains(
		out, "Warning: ") || strings.Count(out, "the first known moment is revision") != 1 {
		t.Errorf("before the history kubectl says: %s", out)
	}
	for name, row := range map[string]struct {
		args string
		code int
		want string
	}{
		"no moment":      {"", 2, "accepts 1 arg(s)"},
		"nonsense":       {"yesterday", 2, "give 2026-11-28T10:42:00Z"},
		"no file":        {"now --kubeconfig nowhere", 1, "keepwatch serve --history writes it"},
		"another file":   {"now --kubeconfig " + otherKubeconfig(t), 1, "is not of keepwatch serve --history"},
		"the name now":   {"10:42 --name now --kubeconfig " + past.kubeconfig, 2, "the context now is the newest state"},
		"into the past":  {"now --speed -1", 2, "--speed -1: give a number from 0 to 1000000000"},
		"no speed":       {"now --speed NaN", 2, "--speed NaN: give a number"},
		"the same again": {"now --name then --kubeconfig " + past.kubeconfig, 0, ""},
	} {
		code, _, stderr := execute(t, append([]string{"history", "context"}, strings.Fields(row.args)...)...)
		if code != row.code || !strings.Contains(stderr, row.want) {
			t.Errorf("%s: exit %d, %s", name, code, stderr)
		}
	}
}

// testPastExplain explains types as the server does. Those of a definition are of the moment.
func testPastExplain(t *testing.T, past *pastServer, live *http.Client, host, to, last string) {
	if code, out, stderr := execute(t, "history", "context", "revision/"+last, "--kubeconfig", past.kubeconfig, "--name",
		"explained"); code != 0 {
		t.Fatalf("exit %d, %s%s", code, out, stderr)
	}
	explain := func(what string, flags ...string) string {
		t.Helper()
		return pastKubectl(t, append([]string{"explain", what}, flags...)...)
	}
	then := []string{"--kubeconfig", past.kubeconfig, "--context", "explained"}
	for _, what := range []string{"services", "configmaps.metadata", "widgets", "widgets.spec.size", "crd.spec.versions"} {
		if got, want := explain(what, append(then, "--recursive")...), explain(what, "--recursive"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	before := explain("widgets.spec.size", then...)
	address := host + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
	const change = `[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/description",` +
		`"value":"How large it is."}]`
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, address, strings.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/json-patch+json")
	response, err := live.Do(q)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	response.Body.Close()
	waitFor(t, func() bool {
		_, out, _ := execute(t, "history", "log", "crd/widgets.example.com", "--from", to, "-o", "json")
		return strings.Contains(out, "How large it is.")
	})
	if now := explain("widgets.spec.size", "--kubeconfig", past.kubeconfig, "--context", "now"); !strings.Contains(now,
		"How large it is.") {
		t.Errorf("now: %s", now)
	}
	if again := explain("widgets.spec.size", then...); again != before {
		t.Errorf("then: %s\nbefore: %s", again, before)
	}
	for _, path := range []string{"/openapi/v3/apis/none/v1", "/openapi/v3/api/v2", "/openapi/v2"} {
		if code, body, _ := past.get(t, "/at/now"+path, acceptJSON); code != http.StatusNotFound {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
}

// pastKubectl runs kubectl.
func pastKubectl(t *testing.T, args ...string) string {
	t.Helper()
	return kubectlExits(t, 0, args...)
}

// kubectlExits runs kubectl, which is this program under that name, and returns its output.
func kubectlExits(t *testing.T, code int, args ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), assets.Kubectl)
	if err := os.Symlink(self(t), name); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = environment(t)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("kubectl %v: %v, %s", args, err, out)
	}
	return string(out)
}

// otherKubeconfig returns a kubeconfig of another cluster.
func otherKubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "other")
	if err := cluster.WriteKubeconfig(file, "other", &rest.Config{Host: "https://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestHistoryPostgres serves a history in Postgres: the values of the server, in another order of members.
func TestHistoryPostgres(t *testing.T) {
	parallel(t)
	database := pgtest.Start(t)
	client, _ := newCluster(t)
	to := database.URL("past")
	startProcess(t, "sync", "configmaps,services", "-A", "--to", to).waitStderr(t, "synced at")
	first := createMap(t, client, "default", "p-first").ResourceVersion
	patch(t, client, "p-first", "m", "text", "<&>\u2028 ünï")
	last := patch(t, client, "p-first", "m", "i", "2")
	stored(t, to, "cm/p-first", "default", last)
	past := servePast(t, to)
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	code, got, _ := past.get(t, "/at/revision/"+last+"/api/v1/namespaces/default/configmaps", acceptJSON)
	var want, have map[string]any
	err = errors.Join(json.Unmarshal(body, &want), json.Unmarshal(got, &have))
	if err != nil || code != http.StatusOK || !reflect.DeepEqual(want, have) {
		t.Errorf("%d, %v\n%s\nwant\n%s", code, err, got, body)
	}
	next := watchPast(t, past, "/at/revision/"+first+"/speed/0/api/v1/configmaps?watch=1&resourceVersion="+first)
	for range 2 {
		if e := next(); e.Type != "MODIFIED" || e.Object.Data["text"] != "<&>\u2028 ünï" {
			t.Errorf("%+v", e)
		}
	}
	now := patch(t, client, "p-first", "m", "i", "3")
	if e := next(); e.Object.ResourceVersion != now {
		t.Errorf("live: %+v, want %s", e, now)
	}
	out, _ := look(t, "blame", "cm/p-first", "--from", to)
	if !regexp.MustCompile(now + ` +\S+ +m +data.i +"3" +"2"`).MatchString(out) {
		t.Error(out)
	}
	if out, _ = look(t, "diff", "cm/p-first", "--at", "revision/"+first, "--from", to, "-o",
		"fields"); !strings.Contains(out, `data.i: <none> > "3"`) {
		t.Error(out)
	}
}
