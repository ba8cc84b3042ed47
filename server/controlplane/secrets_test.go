package controlplane_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A folder with credentials and without etcd's data is refused: the data was lost.
func TestLostData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, controlplane.Options{DataDir: dir}).stop()
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, dir)
	err := runFails(t, controlplane.Options{DataDir: dir, Token: "another"})
	if !strings.Contains(err.Error(), "has no data although there is a token") || strings.Contains(err.Error(), "\n") {
		t.Errorf("the error is %q", err)
	}
	for file, content := range snapshot(t, dir) {
		if before[file] != content {
			t.Errorf("%s was changed", file)
		}
	}
	for _, file := range []string{"token", "ca.pem"} {
		remove(t, dir, file)
	}
	start(t, controlplane.Options{DataDir: dir}).stop()
}

// A user may put a token into a new folder.
func TestGivenToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("given\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := start(t, controlplane.Options{DataDir: dir})
	if token := server.RESTConfig().BearerToken; token != "given" {
		t.Errorf("the token is %q", token)
	}
	must(connect(t, server.RESTConfig()).typed.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}))(t)
}

// A token that a header cannot contain is refused at the start.
func TestInvalidTokens(t *testing.T) {
	for _, token := range []string{"two words", "line\n", "\ttab", " ", "null\x00", "ümlaut"} {
		if _, err := controlplane.New(controlplane.Options{Token: token}); err == nil ||
			!strings.Contains(err.Error(), "a token cannot contain the character") {
			t.Errorf("the token %q: %v", token, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("two\nlines"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := runFails(t, controlplane.Options{DataDir: dir}); !strings.Contains(err.Error(),
		`cannot contain the character '\n'`) {
		t.Errorf("the error is %q", err)
	}
	if _, err := controlplane.New(controlplane.Options{Token: "A-Za-z0-9._~+/=,;"}); err != nil {
		t.Error(err)
	}
}
