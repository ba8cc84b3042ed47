package peer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Build returns the path of b's executable. The first call on a machine builds it, which
// takes minutes; later ones find it in the user's cache folder, under a name that changes
// with everything it is built from.
func Build(tb testing.TB, b Binary) string {
	tb.Helper()
	path, err := b.Path(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Path is Build without a test. It is safe for concurrent use, also by several
// processes: one builds, the others wait for it.
func (b Binary) Path(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	version, err := b.Version()
	if err != nil {
		return "", err
	}
	dir, err := b.dir()
	if err != nil {
		return "", err
	}
	args := b.buildArgs(version)
	digest, err := b.digest(dir, args)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, fmt.Sprintf("%s-%s-%s-%s-%s-%s",
		b.Name, version, runtime.Version(), runtime.GOOS, runtime.GOARCH, digest))
	if touch(path) {
		return path, nil
	}
	unlock, err := lock(filepath.Join(cache, b.Name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if touch(path) {
		return path, nil
	}
	tmp, err := os.MkdirTemp(cache, ".build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, b.Name)
	if err := goBuild(ctx, dir, out, []string{"CGO_ENABLED=0"}, args); err != nil {
		return "", err
	}
	// Another process that sees the file sees all of it.
	if err := os.Rename(out, path); err != nil {
		return "", err
	}
	return path, removeUnused(filepath.Join(cache, b.Name+"-v*"), 30*24*time.Hour)
}

// digest identifies the sources of b, except the Go toolchain: go.sum covers every
// library and tool.
func (b Binary) digest(dir string, args []string) (string, error) {
	h := sha256.New()
	files := []string{"go.mod", "go.sum"}
	if strings.HasPrefix(b.pkg, ".") {
		files = append(files, filepath.Join(b.pkg, "main.go"))
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	fmt.Fprintf(h, "%q", args)
	return fmt.Sprintf("%x", h.Sum(nil)[:4]), nil
}

// goBuild runs the go command with args in dir, and has it write out.
func goBuild(ctx context.Context, dir, out string, env, args []string) error {
	args = append([]string{args[0], "-o", out}, args[1:]...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(goEnv(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s (in %s): %w\n%s", strings.Join(args, " "), dir, err, &stderr)
	}
	return nil
}

// goEnv returns the environment of the go command. A workspace or module flags meant for the
// caller's module would change which versions are built.
func goEnv() []string {
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly -buildvcs=false")
}

// sources returns the folder of the pinned module's sources.
func (b Binary) sources(ctx context.Context) (string, error) {
	dir, err := b.dir()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", b.pinned)
	cmd.Dir, cmd.Env = dir, goEnv()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s (in %s): %w", b.pinned, dir, err)
	}
	var module struct{ Dir string }
	err = json.Unmarshal(out, &module)
	return module.Dir, err
}

// removeUnused removes the binaries that match pattern and that no test has used for the
// given time.
func removeUnused(pattern string, since time.Duration) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err == nil && time.Since(info.ModTime()) > since {
			err = os.Remove(file)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// touch reports whether path exists, and marks it as used now.
func touch(path string) bool {
	now := time.Now()
	return os.Chtimes(path, now, now) == nil
}

func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "keepwatch")
	return dir, os.MkdirAll(dir, 0o755)
}

// lock waits for the exclusive lock of file. It ends with the process at the
// latest.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { f.Close() }, nil
}

// TestModule returns the folder of the module that this package is in, found upwards from
// the working folder: tests run in their package's folder.
func TestModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		text, _ := os.ReadFile(filepath.Join(at, "go.mod"))
		if bytes.HasPrefix(text, []byte("module github.com/keepwatch/keepwatch/test\n")) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside Keepwatch's test module; run from the folder test", dir)
		}
	}
}
