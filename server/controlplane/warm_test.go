package controlplane_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

// A large list that was requested twice before a restart is encoded after it without a request.
func TestRecentEncodingsAreWarmedAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, controlplane.Options{DataDir: dir})
	c := connect(t, first.RESTConfig())
	for i := range 20 {
		must(c.typed.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}, Data: map[string]string{"text": strings.Repeat("x",
				10_000)},
		}, metav1.CreateOptions{}))(t)
	}
	list := func(c clients) []byte {
		return must(c.typed.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
			SetHeader("Accept", "application/json").DoRaw(t.Context()))(t)
	}
	list(c)
	before := list(c)
	await.State(t, "the encoding is recorded", func() (bool, string) {
		recorded, err := os.ReadFile(filepath.Join(dir, "recent-encodings.json"))
		return bytes.Contains(recorded, []byte(`"configmaps"`)), fmt.Sprintf("%s, %v", recorded, err)
	})
	first.stop()

	second := start(t, controlplane.Options{DataDir: dir})
	c = connect(t, second.RESTConfig())
	warmed := func() string {
		raw := must(c.typed.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
		_, value, _ := strings.Cut(string(raw), "\nkeepwatch_readpath_encodings_warmed_total ")
		value, _, _ = strings.Cut(value, "\n")
		return value
	}
	await.State(t, "the list is encoded", func() (bool, string) { return warmed() == "1", warmed() })
	if got := list(c); !bytes.Equal(got, before) {
		t.Errorf("the list is %.300q, was %.300q", got, before)
	}
}
