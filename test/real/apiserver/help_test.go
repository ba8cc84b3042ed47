package apiserver

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/test/peer"
)

// The help is kube-apiserver's, with all its flags, defaults and texts, and a group of our own.
func TestHelp(t *testing.T) {
	upstream, err := peer.LatestKubeAPIServer.Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := help(t, upstream), help(t, peer.KeepwatchAPIServer(t))
	if len(theirs) < 10 {
		t.Fatalf("kube-apiserver's help has %d groups of flags", len(theirs))
	}
	var added []string
	for title, flags := range ours {
		switch want, ok := theirs[title]; {
		case !ok:
			added = append(added, title)
		case flags != want:
			t.Errorf("%s\n%s\nwant\n%s", title, flags, want)
		}
	}
	for title := range theirs {
		if _, ok := ours[title]; !ok {
			t.Errorf("%q is missing", title)
		}
	}
	if want := []string{"Keepwatch flags:"}; !slices.Equal(added, want) {
		t.Errorf("%q are added, want %q", added, want)
	}
	flags := regexp.MustCompile(`(?m)^ *--\S+`).FindAllString(ours["Keepwatch flags:"], -1)
	for i, f := range flags {
		flags[i] = strings.TrimSpace(f)
	}
	if want := []string{"--encodings-budget", "--reads", "--watch-history"}; !slices.Equal(flags, want) {
		t.Errorf("the flags %q are added, want %q", flags, want)
	}
}

// section is the title of a group of flags.
var section = regexp.MustCompile(`(?m)^\S.* flags:$`)

// help returns the groups of flags in the help of a program, by their titles. The global ones name the program.
func help(t *testing.T, program string) map[string]string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v: %s", program, err, output)
	}
	text := strings.ReplaceAll(string(output), "keepwatch-apiserver", "kube-apiserver")
	groups, titles := map[string]string{}, section.FindAllStringIndex(text, -1)
	for i, at := range titles {
		end := len(text)
		if i+1 < len(titles) {
			end = titles[i+1][0]
		}
		groups[text[at[0]:at[1]]] = strings.TrimSpace(text[at[1]:end])
	}
	return groups
}
