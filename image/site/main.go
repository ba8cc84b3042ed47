package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// repository is where the sources are.
const repository = "https://github.com/keepwatch/keepwatch"

func main() {
	repo := flag.String("repo", ".", "root of the repository")
	version := flag.String("version", "", "the version of the documents: vX.Y.Z, vX.Y.Z-rc.N, or what git describe says")
	out := flag.String("o", "", "folder of the site; the version's folder in it is replaced")
	flag.Parse()
	if err := run(*repo, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Println(filepath.Join(*out, "index.html"))
}

// site is one version of the documentation.
type site struct {
	repo    string
	version string
	commit  string
	names   []string        // of all files
	folders map[string]bool // with files
	docs    map[string]*document
}

func run(repo, version, out string) error {
	if version == "" || out == "" {
		return fmt.Errorf("-version and -o are required")
	}
	s := &site{repo: repo, version: version}
	if err := s.read(); err != nil {
		return err
	}
	files, err := s.files()
	if err != nil {
		return err
	}
	folder := filepath.Join(out, folderOf(version))
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for name, text := range files {
		if err := write(filepath.Join(folder, filepath.FromSlash(name)), text); err != nil {
			return err
		}
	}
	return writeVersions(out)
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// read reads the names of all files, and the documents.
func (s *site) read() error {
	commit, err := s.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	names, err := s.git("ls-files", "-z")
	if err != nil {
		return err
	}
	s.commit, s.folders, s.docs = strings.TrimSpace(commit), map[string]bool{}, map[string]*document{}
	for name := range strings.SplitSeq(strings.TrimSuffix(names, "\x00"), "\x00") {
		s.names = append(s.names, name)
		for at := path.Dir(name); at != "."; at = path.Dir(at) {
			s.folders[at] = true
		}
		if path.Ext(name) != ".md" || strings.HasPrefix(name, ".") {
			continue
		}
		text, err := s.content(name)
		if err != nil {
			return err
		}
		s.docs[name] = parse(name, text)
	}
	if s.docs[home] == nil {
		return fmt.Errorf("%s has no %s", s.repo, home)
	}
	return nil
}

func (s *site) content(name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(s.repo, filepath.FromSlash(name)))
}

func (s *site) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = s.repo
	var messages bytes.Buffer
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(messages.Bytes()))
	}
	return string(out), nil
}
