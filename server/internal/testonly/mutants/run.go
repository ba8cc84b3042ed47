package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// goPackage is what go list prints of a package.
type goPackage struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
}

// list returns the packages of patterns that have tests.
func list(ctx context.Context, patterns []string) ([]goPackage, error) {
	command := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles"}, patterns...)...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var tested []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var p goPackage
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			tested = append(tested, p)
		}
	}
	return tested, nil
}

// verdict is what the tests say of a mutant.
type verdict string

const (
	killed   verdict = "killed"
	late     verdict = "late" // the tests did not end in their time
	survived verdict = "survived"
	invalid  verdict = "invalid" // it does not compile
)

// minTimeout is the least time that a package's tests have on a mutant: one that waits for what never comes fails
// within it.
const minTimeout = time.Minute

// trial runs the tests of a package on mutants of it.
type trial struct {
	importPath string
	timeout    time.Duration
	scratch    string // a folder for changed sources
}

// begin runs the tests of a package on its sources, whose time bounds that of its mutants.
func begin(ctx context.Context, importPath, scratch string) (*trial, error) {
	start := time.Now()
	t := &trial{importPath: importPath, timeout: 30 * time.Minute, scratch: scratch}
	v, output, err := t.test(ctx, map[string]string{})
	if err != nil {
		return nil, err
	}
	if v != survived {
		return nil, fmt.Errorf("the tests of %s fail without a change:\n%s", importPath, output)
	}
	t.timeout = max(minTimeout, 5*time.Since(start))
	return t, nil
}

// judge runs the tests on a mutant.
func (t *trial) judge(ctx context.Context, m mutant) (verdict, error) {
	source, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed := filepath.Join(t.scratch, "mutant.go")
	if err := os.WriteFile(changed, m.apply(source), 0o600); err != nil {
		return "", err
	}
	v, _, err := t.test(ctx, map[string]string{m.file: changed})
	return v, err
}

// test runs the tests with other contents of some files.
func (t *trial) test(ctx context.Context, replace map[string]string) (verdict, string, error) {
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", "", err
	}
	overlay := filepath.Join(t.scratch, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", "", err
	}
	command := exec.CommandContext(ctx, "go", "test", "-short", "-count=1", "-failfast", "-vet=off",
		"-timeout", t.timeout.String(), "-overlay", overlay, t.importPath)
	command.WaitDelay = time.Minute // for processes that a test started and did not end
	output, err := command.CombinedOutput()
	switch out := string(output); {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case err == nil:
		return survived, out, nil
	case strings.Contains(out, "[build failed]"), strings.Contains(out, "[setup failed]"):
		return invalid, out, nil
	case strings.Contains(out, "panic: test timed out after"):
		return late, out, nil
	default:
		return killed, out, nil
	}
}
