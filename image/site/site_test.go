package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
)

// build writes a version of the documentation of this repository.
func build(t *testing.T, version, out string) {
	t.Helper()
	if err := run("../..", version, out); err != nil {
		t.Fatal(err)
	}
}

// parsed is what a page has.
type parsed struct {
	ids    map[string]bool
	links  []string // href of a
	loaded []string // what a browser loads with the page
}

func parsePages(t *testing.T, folder string) map[string]*parsed {
	t.Helper()
	names, err := pagesOf(folder)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*parsed{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		tree, err := html.Parse(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		p := &parsed{ids: map[string]bool{}}
		for node := range tree.Descendants() {
			for _, a := range node.Attr {
				switch {
				case a.Key == "id" && p.ids[a.Val]:
					t.Errorf("%s: the id %s is there twice", name, a.Val)
				case a.Key == "id":
					p.ids[a.Val] = true
				case a.Key == "href" && node.Data == "a":
					p.links = append(p.links, a.Val)
				case a.Key == "src" || a.Key == "href" || a.Key == "action":
					p.loaded = append(p.loaded, a.Val)
				}
			}
		}
		all[name] = p
	}
	return all
}

// TestLinks checks that each link within the site leads to a page, an anchor or a picture; that links to other files of
// the repository lead to files that git has; that a page loads only what the site has; and that each page can be
// reached.
func TestLinks(t *testing.T) {
	out := t.TempDir()
	build(t, "v0.1.0", out)
	folder := filepath.Join(out, "v0.1.0")
	pages := parsePages(t, folder)
	if len(pages) < 30 {
		t.Fatalf("%d pages", len(pages))
	}
	s := &site{repo: "../.."}
	if err := s.read(); err != nil {
		t.Fatal(err)
	}
	links := map[string][]string{}
	for name, p := range pages {
		for _, link := range p.loaded {
			if _, err := os.Stat(filepath.Join(folder, path.Dir(name), link)); err != nil {
				t.Errorf("%s loads %s: %v", name, link, err)
			}
		}
		for _, link := range p.links {
			if strings.Contains(link, ":") {
				file, ours := strings.CutPrefix(link, repository+"/blob/"+s.commit+"/")
				dir, _ := strings.CutPrefix(link, repository+"/tree/"+s.commit+"/")
				file, _, _ = strings.Cut(file, "#")
				if ours && !slices.Contains(s.names, file) || !ours && dir != link && !s.folders[dir] {
					t.Errorf("%s: git has nothing at %s", name, link)
				}
				continue
			}
			file, anchor, anchored := strings.Cut(link, "#")
			to := path.Join(path.Dir(name), file)
			if file == "" {
				to = name
			}
			if isPicture(to) {
				if _, err := os.Stat(filepath.Join(folder, to)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if pages[to] == nil {
				t.Errorf("%s: the link %s leads nowhere", name, link)
			} else if anchored && !pages[to].ids[anchor] {
				t.Errorf("%s: the link %s leads to no heading", name, link)
			}
			links[name] = append(links[name], to)
		}
	}
	reached := map[string]bool{"search.html": true} // by the form
	for next := []string{"index.html"}; len(next) > 0; next = next[1:] {
		if at := next[0]; !reached[at] {
			reached[at] = true
			next = append(next, links[at]...)
		}
	}
	for name := range pages {
		if !reached[name] && !strings.HasPrefix(name, "docs/findings/") { // their folder is linked
			t.Errorf("no links lead from the first page to %s", name)
		}
	}
}

// TestLink checks what becomes of the links of a document.
func TestLink(t *testing.T) {
	s := &site{
		commit: "c", folders: map[string]bool{"x": true},
		docs: map[string]*document{"README.md": {}, "docs/a.md": {}, "x/README.md": {}},
	}
	for _, c := range [][3]string{
		{"docs/a.md", "../README.md#b", "../index.html#b"},
		{"README.md", "docs/a.md", "docs/a.html"},
		{"docs/a.md", "a.md#c", "../docs/a.html#c"},
		{"docs/a.md", "#c", "#c"},
		{"docs/a.md", "a.svg", "a.svg"},
		{"docs/a.md", "../x/README.md", "../x/index.html"},
		{"docs/a.md", "../x", repository + "/tree/c/x"},
		{"docs/a.md", "../x/y.go#L1", repository + "/blob/c/x/y.go#L1"},
		{"docs/a.md", "https://example.com/a.md", "https://example.com/a.md"},
	} {
		if got := s.link(c[0], c[1]); got != c[2] {
			t.Errorf("in %s, %s becomes %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

// TestVersions checks that other versions stay, and that the start page leads to the newest release.
func TestVersions(t *testing.T) {
	out := t.TempDir()
	for _, c := range []struct{ build, newest, list string }{
		{"0a1b2c3-dirty", "main", "main"},
		{"v0.1.0-rc.1", "v0.1.0-rc.1", "v0.1.0-rc.1 main"},
		{"v0.10.0", "v0.10.0", "v0.10.0 v0.1.0-rc.1 main"},
		{"v0.9.0", "v0.10.0", "v0.10.0 v0.9.0 v0.1.0-rc.1 main"},
		{"v0.11.0-rc.2", "v0.10.0", "v0.10.0 v0.9.0 v0.11.0-rc.2 v0.1.0-rc.1 main"},
		{"v0.9.0-3-g0a1b2c3", "v0.10.0", "v0.10.0 v0.9.0 v0.11.0-rc.2 v0.1.0-rc.1 main"},
	} {
		build(t, c.build, out)
		list, err := os.ReadFile(filepath.Join(out, "versions.js"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, found := range regexp.MustCompile(`"name":"(.*?)"`).FindAllSubmatch(list, -1) {
			names = append(names, string(found[1]))
		}
		if got := strings.Join(names, " "); got != c.list {
			t.Errorf("after %s: the versions %s, want %s", c.build, got, c.list)
		}
		start, err := os.ReadFile(filepath.Join(out, "index.html"))
		if err != nil || !bytes.Contains(start, []byte("url="+c.newest+"/index.html")) {
			t.Errorf("after %s: the start page is %s, %v", c.build, start, err)
		}
	}
	for folder, version := range map[string]string{"main": "v0.9.0-3-g0a1b2c3", "v0.9.0": "v0.9.0"} {
		text, err := os.ReadFile(filepath.Join(out, folder, "docs", "sync.html"))
		if err != nil || !bytes.Contains(text, []byte("<option>"+version+"</option>")) {
			t.Errorf("%s does not say %s: %v", folder, version, err)
		}
	}
	if err := run("../..", "", out); err == nil {
		t.Error("there is no error without a version")
	}
}

// TestSameBytes checks that two builds are the same.
func TestSameBytes(t *testing.T) {
	s := &site{repo: "../..", version: "v0.1.0"}
	var all [2]map[string][]byte
	for i := range all {
		if err := s.read(); err != nil {
			t.Fatal(err)
		}
		var err error
		if all[i], err = s.files(); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range all[0] {
		if !bytes.Equal(text, all[1][name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestSearchInBrowser opens the site from the disk, without any server, and searches.
func TestSearchInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium: the search is NOT tested in a browser (make debian)")
	}
	out := t.TempDir()
	build(t, "v0.1.0", out)
	build(t, "v0.2.0", out)
	for query, want := range map[string][]string{
		"":                           {"Type what you look for."},
		"gamma+ray+burst+xyzzy":      {"0 sections"},
		"roll+back+proxy":            {`href="docs/proxy.html#roll-back"`, "<mark>"},
		"KUBEBUILDER_assets":         {`href="docs/testing.html#an-unchanged-envtest-suite"`},
		"%3Cscript%3Ealert%3C":       {"0 sections"},
		"who+must+be+trusted+%28%5B": {"0 sections"}, // no regular expression
	} {
		dom := browse(t, browser, "file://"+filepath.Join(out, "v0.1.0", "search.html")+"?q="+query)
		for _, part := range append(want, `<option value="v0.2.0">v0.2.0</option>`) {
			if !strings.Contains(dom, part) {
				t.Errorf("search of %q: no %s in %s", query, part, dom)
			}
		}
	}
}

// browse returns the document that a browser has of a page when it has loaded.
func browse(t *testing.T, browser, page string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--dump-dom", page)
	var messages bytes.Buffer
	run.Stderr = &messages
	dom, err := run.Output()
	if err != nil {
		t.Fatalf("the browser: %v\n%s", err, messages.String())
	}
	return string(dom)
}
