package memory_test

import (
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) { os.Exit(await.Tests(m)) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
