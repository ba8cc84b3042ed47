package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// identity says what a result is about.
type identity struct {
	commit  string // as git describe prints it, with -dirty
	sources string // a digest of the files that a result depends on
}

// generated matches the files that a part writes, and the documents. They are no sources: a run that commits its
// results continues on the next commit.
var generated = regexp.MustCompile(`^(docs/|test/results/|test/[a-z]+/results/|test/matrix/losthistory/|[A-Z]+\.md$)`)

// identify identifies the files of a work tree, committed or not.
func identify(root string) (identity, error) {
	commit, err := git(root, nil, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	if err != nil {
		return identity{}, err
	}
	dir, err := os.MkdirTemp("", "verify")
	if err != nil {
		return identity{}, err
	}
	defer os.RemoveAll(dir)
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "index")} // the user's own is not touched
	if _, err := git(root, index, "add", "--all"); err != nil {
		return identity{}, err
	}
	files, err := git(root, index, "ls-files", "--stage")
	if err != nil {
		return identity{}, err
	}
	digest := sha256.New()
	for line := range strings.Lines(files) {
		if _, name, _ := strings.Cut(strings.TrimSpace(line), "\t"); !generated.MatchString(name) {
			digest.Write([]byte(line))
		}
	}
	return identity{strings.TrimSpace(commit), fmt.Sprintf("%x", digest.Sum(nil))[:16]}, nil
}

func git(dir string, environment []string, args ...string) (string, error) {
	command := exec.Command("git", args...)
	command.Dir, command.Env = dir, append(os.Environ(), environment...)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
