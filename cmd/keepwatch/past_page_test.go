package main

import (
	"bytes"
	"database/sql"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const hostile = "<script>alert(1)</script>"

// pageOf is a page of serve --history, parsed.
type pageOf struct {
	*testing.T
	code   int
	header http.Header
	text   string // without tags
	links  []pageLink
	tags   map[string]int
	lines  []string // of pre
}

type pageLink struct{ class, href, text string }

// readPage gets the page at an address, and fails if it has a script.
func readPage(t *testing.T, past *pastServer, path string) *pageOf {
	t.Helper()
	p := &pageOf{T: t, tags: map[string]int{}}
	var body []byte
	p.code, body, p.header = past.get(t, path, "text/html")
	root, err := html.Parse(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	p.text = textOf(root)
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		p.tags[n.Data]++
		switch n.Data {
		case "a":
			p.links = append(p.links, pageLink{attributeOf(n, "class"), attributeOf(n, "href"), textOf(n)})
		case "pre":
			p.lines = strings.Split(strings.TrimSpace(textOf(n)), "\n")
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" {
				t.Errorf("%s: <%s %s=%q>", path, n.Data, a.Key, a.Val)
			}
		}
	}
	if p.tags["script"]+p.tags["style"] > 0 {
		t.Errorf("%s has a script: %s", path, body)
	}
	return p
}

func textOf(n *html.Node) string {
	var text strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			text.WriteString(d.Data)
		}
	}
	return text.String()
}

func attributeOf(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// link returns the address of a link of a class whose text has a part.
func (p *pageOf) link(class, part string) string {
	p.Helper()
	for _, l := range p.links {
		if l.class == class && strings.Contains(l.text, part) {
			href, _, _ := strings.Cut(l.href, "#")
			return href
		}
	}
	p.Fatalf("no link %q of %q: %+v", class, part, p.links)
	return ""
}

// must fails unless the page has a code, and texts.
func (p *pageOf) must(code int, texts ...string) {
	p.Helper()
	if p.code != code {
		p.Errorf("code %d, want %d", p.code, code)
	}
	for _, text := range texts {
		if !strings.Contains(p.text, text) {
			p.Errorf("the page lacks %q: %s", text, p.text)
		}
	}
}

// spread gives what was stored of a namespace times that are minutes apart, in the order of revisions, an hour ago, and
// returns that of the first change. The tests of the page need marks that do not touch each other.
func spread(t *testing.T, file, namespace string) time.Time {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begin := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	rows, err := db.QueryContext(t.Context(), `SELECT valid_from FROM resources WHERE namespace = ?1
		UNION SELECT valid_to FROM resources WHERE namespace = ?1 AND valid_to IS NOT NULL ORDER BY 1`, namespace)
	if err != nil {
		t.Fatal(err)
	}
	var revisions []int64
	for rows.Next() {
		var revision int64
		if err := rows.Scan(&revision); err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, revision)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	change := func(statement string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	minute := func(n int) string { return begin.Add(time.Duration(n) * time.Minute).Format("2006-01-02 15:04:05.000") }
	change(`UPDATE states SET seen_from = ?1, seen_to = CASE WHEN seen_to IS NOT NULL THEN ?1 END`, minute(-10))
	change(`UPDATE cursors SET first_seen = ?`, minute(-10))
	for i, revision := range revisions {
		change(`UPDATE states SET seen_from = ? WHERE namespace = ? AND valid_from = ?`, minute(5*i), namespace, revision)
		change(`UPDATE states SET seen_to = ? WHERE namespace = ? AND valid_to = ?`, minute(5*i), namespace, revision)
	}
	return begin
}

// testPastPage looks at the page of a history with an object that was created, changed within a gap, and deleted, and
// with one that has a hostile name, as no API server allows.
func testPastPage(t *testing.T, client kubernetes.Interface) {
	const ns = "page"
	create(t, client.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	file := filepath.Join(t.TempDir(), "state.db")
	to := "sqlite:" + file
	sync := startProcess(t, "sync", "configmaps", "-A", "--to", to)
	sync.waitStderr(t, "synced at")
	maps := client.CoreV1().ConfigMaps(ns)
	change := func(o *corev1.ConfigMap, key, value, manager string) *corev1.ConfigMap {
		t.Helper()
		o = o.DeepCopy()
		o.Data = map[string]string{key: value}
		o, err := maps.Update(t.Context(), o, metav1.UpdateOptions{FieldManager: manager})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	created := createMap(t, client, ns, "web")
	green := change(created, "color", "green", "bob")
	other := createMap(t, client, ns, "other")
	red := change(green, "color", hostile, "alice")
	if err := maps.Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	last := createMap(t, client, ns, "last")
	stored(t, to, "cm/last", ns, last.ResourceVersion)
	sync.end()
	diff, _ := look(t, "diff", "cm/web", "-n", ns, "--at", "revision/"+created.ResourceVersion, "--and", "revision/"+
		green.ResourceVersion, "--from", to)
	begin := spread(t, file, ns)
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	for statement, args := range map[string][]any{
		`INSERT INTO gaps (resource, namespace, epoch, from_revision, to_revision, reason, seen, ended) SELECT 'configmaps', '', 0, ?1, ?2, 'expired', ?3, ?3`: {green.ResourceVersion, red.ResourceVersion, begin.Add(15 * time.Minute).Format("2006-01-02 15:04:05.000")},
		`UPDATE states SET name = ? WHERE name = 'other'`: {hostile},
	} {
		if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	past := servePast(t, to)

	form := readPage(t, past, "/keepwatch/")
	form.must(http.StatusOK, "Choose a type")
	if csp := form.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp,
		"default-src 'none'; style-src 'self';") || strings.Contains(csp, "script") || form.tags["option"] != 2 {
		t.Errorf("%q, %v", csp, form.tags)
	}
	if code, body, header := past.get(t, "/keepwatch/page.css", "text/css"); code != http.StatusOK || len(body) == 0 ||
		header.Get("Content-Type") != "text/css; charset=utf-8" {
		t.Errorf("the style: %d, %v", code, header)
	}
	if p := readPage(t, past, "/keepwatch"); p.code != http.StatusOK { // where it is redirected to
		t.Errorf("without its slash: %d", p.code)
	}

	from := begin.Add(-5 * time.Minute).Format(time.RFC3339)
	address := "/keepwatch/?" + url.Values{"type": {"configmaps"}, "namespace": {ns}, "from": {from}}.Encode()
	timeline := readPage(t, past, address)
	timeline.must(http.StatusOK, ns+"/web", ns+"/"+hostile, "missing from "+
		begin.Add(5*time.Minute).Format("2006-01-02 15:04:05"), ": expired")
	if timeline.tags["svg"] != 1 || timeline.tags["path"] != 6 {
		t.Errorf("%v", timeline.tags)
	}
	lanes := []string{}
	for _, l := range timeline.links {
		if l.class == "" && strings.HasPrefix(l.text, ns+"/") {
			lanes = append(lanes, l.text[:len(l.text)/2]) // its title and its text
		}
		if p := readPage(t, past, "/keepwatch/"+l.href); l.class != "" && (p.code != http.StatusOK || p.tags["dl"] != 1) {
			t.Errorf("%+v: %d, %s", l, p.code, p.text)
		} else if p.code != http.StatusOK && p.code != http.StatusGone { // a time in the gap, or before the first list
			t.Errorf("%+v: %d, %s", l, p.code, p.text)
		}
	}
	if want := []string{ns + "/last", ns + "/web", ns + "/" + hostile}; !slices.Equal(lanes, want) {
		t.Errorf("the lanes %q, want %q", lanes, want)
	}

	// The difference is that of the command.
	modified := readPage(t, past, "/keepwatch/"+timeline.link("modified", "revision "+green.ResourceVersion))
	modified.must(http.StatusOK, "Written by bob.", "keepwatch history restore configmaps/web -n page --at revision/"+
		created.ResourceVersion+" --from DATABASE",
		"keepwatch history restore configmaps/web -n page --at revision/"+green.ResourceVersion)
	want := strings.Split(strings.TrimSpace(diff), "\n")
	if len(modified.lines) < 3 || !slices.Equal(modified.lines[2:], want[2:]) { // without the times, which were changed
		t.Errorf("%q\nwant\n%q", modified.lines, want)
	}
	inGap := readPage(t, past, "/keepwatch/"+timeline.link("modified", "revision "+red.ResourceVersion))
	inGap.must(http.StatusOK, hostile, "is missing (expired): there may have been other changes")
	gone := readPage(t, past, "/keepwatch/"+timeline.link("deleted", "DELETED"))
	gone.must(http.StatusOK, "+++ /dev/null", "--at revision/"+red.ResourceVersion+" --from")
	found := readPage(t, past, "/keepwatch/"+timeline.link("added", "revision "+other.ResourceVersion)) // in the gap
	found.must(http.StatusOK, "keepwatch history restore 'configmaps/"+hostile+"' -n page --at revision/"+
		red.ResourceVersion)

	// The list of a moment, as columns; by the moment in the address, too.
	for _, path := range []string{address + "&at=revision/" + green.ResourceVersion, "/at/revision/" +
		green.ResourceVersion + address} {
		p := readPage(t, past, path)
		p.must(http.StatusOK, "1 configmaps at revision "+green.ResourceVersion, "Data", "--at revision/"+
			green.ResourceVersion)
	}
	// All changes of the object as one mark, and with the status.
	far := address + "&to=now&name=web&object=" + ns + "/web&since=" + created.ResourceVersion + "&upto=" +
		red.ResourceVersion
	readPage(t, past, far).must(http.StatusOK, "3 changes until revision "+red.ResourceVersion, "+  color: "+hostile)
	readPage(t, past, far+"&status=1").must(http.StatusOK, "With status. Without")

	for name, row := range map[string]struct {
		path string
		code int
		want string
	}{
		"from the beginning": {"/keepwatch/?type=configmaps&namespace=page&from=revision/1", 200, ns + "/web"},
		"a type":             {"/keepwatch/?type=" + url.QueryEscape(hostile), 404, "the history has no " + hostile},
		"a namespace": {"/keepwatch/?type=configmaps&namespace=" + url.QueryEscape(hostile), 200,
			"No object has changed"},
		"a name":            {"/keepwatch/?type=configmaps&name=x", 400, "a name needs a namespace"},
		"nonsense":          {address + "&at=" + url.QueryEscape(hostile), 400, "give 2026-11-28T10:42:00Z"},
		"a beginning":       {"/keepwatch/?type=configmaps&from=yesterday", 400, "give 2026-11-28T10:42:00Z"},
		"an end":            {"/keepwatch/?type=configmaps&to=2999-01-01T00:00:00Z", 400, "is in the future"},
		"the wrong order":   {"/keepwatch/?type=configmaps&from=now", 400, "must begin before that"},
		"an unknown moment": {address + "&at=revision/1", 410, "the first known moment is revision"},
		"a moment in the gap": {address + "&at=revision/" + other.ResourceVersion, 410,
			"the nearest known moments are revision " + green.ResourceVersion},
		"a later moment": {address + "&at=revision/99999999", 410, "the last known moment is revision"},
		"no such object": {address + "&object=page/none&since=1&upto=2", 404, "no object of the timeline is page/none"},
		"no such change": {address + "&object=page/web&since=1&upto=" + red.ResourceVersion, 404,
			"the timeline has no change of page/web from revision 1"},
		"a bad change": {address + "&object=page/web&since=x.1&upto=y", 400, "not valid"},
		"no such file": {"/keepwatch/page.html", 404, "the page has no page.html"},
	} {
		p := readPage(t, past, row.path)
		if p.code != row.code || !strings.Contains(p.text, row.want) {
			t.Errorf("%s: %d, %s", name, p.code, p.text)
		}
	}
	stranger := past.withoutToken()
	for _, path := range []string{"/keepwatch/", address, "/keepwatch/page.css"} {
		if code, body, _ := fetchBody(t, stranger, past.host+path, "text/html"); code != http.StatusUnauthorized ||
			strings.Contains(string(body), "web") {
			t.Errorf("without the token: %d, %s", code, body)
		}
	}
	response, err := past.client.Post(past.host+address, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", response.StatusCode)
	}
}
