package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source is the commit of which a release is made. The working tree has its files and no others.
type source struct {
	repo   string
	commit string
	date   time.Time
}

// readSource returns the commit of a clean working tree, which a tag of the version must name if it exists.
func readSource(repo string, v version) (source, error) {
	s := source{repo: repo}
	changes, err := s.git("status", "--porcelain")
	if err != nil {
		return s, err
	}
	if changes != "" {
		first, _, _ := strings.Cut(changes, "\n")
		return s, fmt.Errorf("the working tree has changes, so no commit describes the release: "+
			"commit or remove them first (%s)", strings.TrimSpace(first))
	}
	if s.commit, err = s.git("rev-parse", "HEAD"); err != nil {
		return s, err
	}
	tag, _ := s.git("rev-parse", "--quiet", "--verify", "refs/tags/"+v.String()+"^{commit}")
	if tag != "" && tag != s.commit {
		return s, fmt.Errorf("the tag %s is commit %s, and the working tree is %s: "+
			"check out the tag, or choose another version", v, tag, s.commit)
	}
	seconds, of := os.Getenv("SOURCE_DATE_EPOCH"), "SOURCE_DATE_EPOCH"
	if seconds == "" {
		of = "the commit's time"
		if seconds, err = s.git("log", "-1", "--format=%ct"); err != nil {
			return s, err
		}
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("%s is no number of seconds: %w", of, err)
	}
	s.date = time.Unix(unix, 0).UTC()
	return s, nil
}

// files returns the tracked files below a folder, in the order of their names, which are relative to it.
func (s source) files(folder string) ([]file, error) {
	names, err := s.git("ls-files", "-z", "--", folder)
	if err != nil {
		return nil, err
	}
	var all []file
	for _, name := range strings.Split(strings.TrimRight(names, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(s.repo, name))
		if err != nil {
			return nil, err
		}
		all = append(all, file{strings.TrimPrefix(name, folder+"/"), 0o644, text})
	}
	return all, nil
}

func (s source) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = s.repo
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("git %s: %s", args[0], bytes.TrimSpace(exit.Stderr))
	}
	return strings.TrimSpace(string(out)), err
}
