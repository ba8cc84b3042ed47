package keepwatch_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

// The limits of a document.
const (
	maxLines     = 600
	maxParagraph = 6 * 120 // characters that a reader sees: six lines
	maxCell      = 200
)

// shorter are the lengths of documents that have a limit of their own: the first page, and the page of figures.
var shorter = map[string]int{"README.md": 120, "docs/performance.md": 250}

// TestDocuments checks each document of the repository: its length, the lengths of its paragraphs and table cells, and
// its links.
func TestDocuments(t *testing.T) {
	root := os.DirFS(".")
	for _, name := range documents(t, root) {
		for _, fault := range faultsOf(root, name) {
			t.Error(fault)
		}
	}
}

// parts are the sections of a page about a part of Keepwatch, in their order. A page may have others between them.
var parts = []string{"## Quick start", "## How to", "## Reference", "## Limits", "## Troubleshooting"}

// TestPages checks that each page which begins a task has all parts, and says before them what it is about.
func TestPages(t *testing.T) {
	root := os.DirFS(".")
	names, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Split(string(text), "\n"), parts[0]) {
			continue // a page of figures, verdicts or decisions
		}
		checked++
		if fault := faultOfPage(string(text)); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if checked < 15 {
		t.Errorf("%d pages begin a task", checked)
	}
}

// faultOfPage returns what a page lacks, or "".
func faultOfPage(text string) string {
	begin := true
	next := 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch at := slices.Index(parts, line); {
		case strings.HasPrefix(line, "# ") || line == "":
		case at < 0:
			begin = false
		case begin:
			return "nothing says what it is about before " + line
		case at != next:
			return fmt.Sprintf("%q is not the next section after %q", line, parts[:next])
		default:
			next++
		}
	}
	if next < len(parts) {
		return fmt.Sprintf("there is no %q", parts[next])
	}
	return ""
}

// TestFaultsOfPages checks that a missing section, a wrong order and a missing introduction are found, and nothing
// else.
func TestFaultsOfPages(t *testing.T) {
	const rest = "## How to\n## Reference\n## Limits\n## Troubleshooting\n"
	for text, want := range map[string]string{
		"# A\n\nIt does.\n\n## Quick start\n" + rest:                   "",
		"# A\n\nIt does.\n\n## Quick start\n## More\n" + rest:          "",
		"# A\n\n## Quick start\n" + rest:                               "nothing says what it is about before ## Quick start",
		"# A\n\nIt does.\n\n## Quick start\n## How to\n## Reference\n": `there is no "## Limits"`,
		"# A\n\nIt does.\n\n## Quick start\n## Limits\n":               `"## Limits" is not the next section after ["## Quick start"]`,
	} {
		if got := faultOfPage(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// fileName matches a file, or files by a pattern, in a package's table of files.
var fileName = regexp.MustCompile(`[\w*]+\.go\b`)

// TestFileTables checks that a package's table of files, in the lines of its comment that begin with a tab, has each
// file, and no other one.
func TestFileTables(t *testing.T) {
	root := os.DirFS(".")
	err := fs.WalkDir(root, ".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		if base := entry.Name(); dir != "." && base[0] == '.' || slices.Contains(notSources, base) {
			return fs.SkipDir
		}
		files, err := fs.Glob(root, path.Join(dir, "*.go"))
		if err != nil {
			return err
		}
		files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
		var table, untitled []string
		for _, name := range files {
			source, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			comment, _, _ := strings.Cut(string(source), "\npackage ")
			var named []string
			for line := range strings.Lines(comment) {
				if row, ok := strings.CutPrefix(line, "//\t"); ok {
					named = append(named, fileName.FindAllString(row, -1)...)
				}
			}
			if len(named) > 1 {
				table = named
			} else if base := path.Base(name); base != "doc.go" && !strings.HasPrefix(base, "zz_generated") {
				untitled = append(untitled, base)
			}
		}
		if table == nil {
			return nil
		}
		for _, pattern := range table {
			if found, err := fs.Glob(root, path.Join(dir, pattern)); err != nil || len(found) == 0 {
				t.Errorf("%s: there is no file %s, which the table has", dir, pattern)
			}
		}
		for _, name := range untitled {
			if !slices.ContainsFunc(table, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) {
				t.Errorf("%s: the table is without %s", dir, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFaultsOfDocuments checks that each broken rule is found, and nothing else.
func TestFaultsOfDocuments(t *testing.T) {
	long := strings.Repeat("word ", 144) // 719 characters that are seen
	cell := strings.Repeat("c", 200)
	for name, test := range map[string]struct{ text, want string }{
		"lines":     {strings.Repeat("\n", maxLines+1), "a.md has 601 lines, and may have 600"},
		"paragraph": {"# A\n\n" + long + "\nand more\n", "a.md:3: a paragraph has 728 characters, and may have 720"},
		"item": {"- one\n- " + long + "\n  and more\n",
			"a.md:2: a paragraph has 730 characters, and may have 720"},
		"two paragraphs": {long + "\n\n" + long + "\n", ""},
		"list":           {strings.Repeat("1. an item\n   in two lines\n", 50), ""},
		"link's target":  {long[5:] + "[x](b.md?" + strings.Repeat("q", maxParagraph) + ")", ""},
		"code":           {"    " + long + long + "\n\n```\n" + long + long + "\n[x](no.md)\n```\n", ""},
		"cell": {"| a | b |\n|---|---|\n| " + cell + " | " + cell + "d |\n",
			"a.md:3: a table cell has 201 characters, and may have 200"},
		"escaped": {"| " + cell[1:] + `\|` + cell + " |\n",
			"a.md:1: a table cell has 400 characters, and may have 200"},
		"dead file": {"see [no](no.md) and [b](b.md)", "a.md:1: the link no.md leads nowhere"},
		"dead anchor": {"[b](b.md#three), [b](b.md#one-and-two), [b](b.md#one-and-two-1)",
			"a.md:1: the link b.md#three leads to no heading"},
		"anchor here": {"# Here `code`: [it](b.md)!\n\n[x](#here-code-it), [y](#there)\n",
			"a.md:3: the link #there leads to no heading"},
		"image, folder":   {"![x](x/p.svg) [x](x) [w](https://example.com/no.md)", ""},
		"in code":         {"`[x](no.md)`", ""},
		"above the root":  {"[x](../no.md)", "a.md:1: the link ../no.md leads nowhere"},
		"link on 2 lines": {"see [a\nlong text](no.md)", "a.md:2: the link no.md leads nowhere"},
	} {
		files := fstest.MapFS{
			"a.md":    {Data: []byte(test.text)},
			"b.md":    {Data: []byte("# One *and* two\n\n## One and two\n")},
			"x/p.svg": {Data: []byte("<svg/>")},
		}
		if got := strings.Join(faultsOf(files, "a.md"), "\n"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestPictures checks that each picture was drawn from its source, whose checksum it ends with.
func TestPictures(t *testing.T) {
	for picture, source := range map[string]string{
		"docs/pipeline.svg":        "docs/pipeline.d2",
		"docs/dashboard-proxy.svg": "deploy/grafana/keepwatch-proxy.json",
		"docs/dashboard-sync.svg":  "deploy/grafana/keepwatch-sync.json",
	} {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := os.ReadFile(picture)
		if err != nil {
			t.Fatal(err)
		}
		if of := fmt.Sprintf("<!-- %s %x -->\n", path.Base(source), sha256.Sum256(text)); !bytes.HasSuffix(drawn,
			[]byte(of)) {
			t.Errorf("%s was not drawn from this %s (make pictures): it does not end with %s", picture, source, of)
		}
	}
}

// notSources are folders without sources of ours.
var notSources = []string{"bin", "node_modules", "target", "testdata"}

// documents returns the names of all Markdown files, except those of others.
func documents(t *testing.T, root fs.FS) (names []string) {
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch base := entry.Name(); {
		case entry.IsDir() && (name != "." && base[0] == '.' || slices.Contains(notSources, base)):
			return fs.SkipDir
		case path.Ext(base) == ".md":
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var (
	code    = regexp.MustCompile("`[^`]*`")
	heading = regexp.MustCompile(`^#{1,6} `)
	item    = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s`)
	linked  = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	divider = regexp.MustCompile(`\\\||\|`)
)

// faultsOf returns what is wrong with one document.
func faultsOf(root fs.FS, name string) (faults []string) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return []string{err.Error()}
	}
	report := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
	}
	most := maxLines
	if own, ok := shorter[name]; ok {
		most = own
	}
	if n := bytes.Count(text, []byte("\n")); n > most {
		faults = append(faults, fmt.Sprintf("%s has %d lines, and may have %d", name, n, most))
	}
	for _, p := range blocks(string(text)) {
		if p.table {
			for _, cell := range cells(p.text) {
				if n := len([]rune(shown(cell))); n > maxCell {
					report(p.line, "a table cell has %d characters, and may have %d", n, maxCell)
				}
			}
		} else if n := len([]rune(shown(p.text))); n > maxParagraph {
			report(p.line, "a paragraph has %d characters, and may have %d", n, maxParagraph)
		}
		for i, line := range strings.Split(code.ReplaceAllStringFunc(p.text, linesOf), "\n") {
			for _, link := range linked.FindAllStringSubmatch(line, -1) {
				if fault := deadLink(root, name, link[1]); fault != "" {
					report(p.line+i, "the link %s %s", link[1], fault)
				}
			}
		}
	}
	return faults
}

// linesOf is a text without all but the ends of its lines.
func linesOf(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// block is a paragraph, an item of a list, a heading or a row of a table.
type block struct {
	line    int // of its beginning, from 1
	text    string
	table   bool
	heading bool
}

// blocks divides a document, without its code and comments.
func blocks(text string) (all []block) {
	open, fenced := false, false // open: the next line can continue the last block
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			open, fenced = false, !fenced
			continue
		}
		switch b := (block{line: i + 1, text: line}); {
		case fenced:
		case trimmed == "" || strings.HasPrefix(trimmed, "<!--") || !open && strings.HasPrefix(line, "    ") &&
			!item.MatchString(line):
			open = false
		case heading.MatchString(line):
			b.heading, open = true, false
			all = append(all, b)
		case trimmed[0] == '|':
			b.table, open = true, false
			all = append(all, b)
		case open && !item.MatchString(line):
			all[len(all)-1].text += "\n" + line
		default:
			open = true
			all = append(all, b)
		}
	}
	return all
}

// cells divides a row of a table.
func cells(row string) []string {
	row = divider.ReplaceAllStringFunc(strings.TrimSpace(row), func(s string) string {
		if s == "|" {
			return "\x00"
		}
		return "|"
	})
	return strings.Split(row, "\x00")
}

// shown is the text that a reader sees: without the targets of links, and without marks of emphasis and code.
func shown(text string) string {
	text = linked.ReplaceAllString(text, "]")
	text = strings.NewReplacer("`", "", "**", "", "[", "", "]", "").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

// deadLink returns what is wrong with a link of a document, or "".
func deadLink(root fs.FS, from, link string) string {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return ""
	}
	file, anchor, anchored := strings.Cut(link, "#")
	file, _, _ = strings.Cut(file, "?")
	target := path.Join(path.Dir(from), file)
	if file == "" {
		target = from
	}
	if _, err := fs.Stat(root, target); err != nil {
		return "leads nowhere"
	}
	if !anchored || path.Ext(target) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(root, target)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), anchor) {
		return "leads to no heading"
	}
	return ""
}

// anchors returns the anchors that GitHub gives the headings of a document.
func anchors(text string) (all []string) {
	count := map[string]int{}
	for _, b := range blocks(text) {
		if !b.heading {
			continue
		}
		heading := strings.ToLower(linked.ReplaceAllString(strings.TrimLeft(strings.TrimSpace(b.text), "# "), "]"))
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, heading)
		if n := count[anchor]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			all = append(all, anchor)
		}
		count[anchor]++
	}
	return all
}
