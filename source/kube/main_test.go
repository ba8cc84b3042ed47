package kube

import (
	"net/http"
	"os"
	"testing"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	os.Exit(await.Goroutines(code))
}
