package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

var (
	section = regexp.MustCompile(`(?m)^## (v\S+?), (.*)$`)
	anyH2   = regexp.MustCompile(`(?m)^## `)

	// relative is the target of a link to a file of the repository, from its root.
	relative = regexp.MustCompile(`\]\(([A-Za-z0-9][^():\s]*)\)`)
)

// unreleased is in the heading of a version that has candidates only.
const unreleased = "not released yet"

// readNotes returns the version's section of CHANGELOG.md, without its heading. Its links to files become addresses of
// the version's. A candidate has the section of the version that it becomes. Only that section may lack the day of the
// release.
func readNotes(repo string, v version) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	for _, at := range section.FindAllSubmatchIndex(text, -1) {
		if string(text[at[2]:at[3]]) != v.final().String() {
			continue
		}
		when := string(text[at[4]:at[5]])
		if _, err := time.Parse(time.DateOnly, when); err != nil && (when != unreleased || !v.isCandidate()) {
			return nil, fmt.Errorf("CHANGELOG.md says %q of %[2]s: write the day of the release, as \"## %[2]s, 2006-01-02\"",
				when, v.final())
		}
		notes := text[at[1]:]
		if next := anyH2.FindIndex(notes); next != nil {
			notes = notes[:next[0]]
		}
		notes = relative.ReplaceAll(append(bytes.TrimSpace(notes), '\n'), []byte("]("+repository+"/blob/"+v.String()+"/$1)"))
		if v.isCandidate() {
			notes = fmt.Appendf(nil, "A candidate of %s, for tests.\n\n%s", v.final(), notes)
		}
		return notes, nil
	}
	return nil, fmt.Errorf("CHANGELOG.md has no section \"## %s, …\": write one first", v.final())
}
