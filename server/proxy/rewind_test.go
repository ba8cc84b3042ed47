package proxy

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch"
)

// The server is restored from a backup while clients watch: each of them receives 410, lists, and has the server's
// state. Nothing of the undone history is answered from memory any more, and no undone revision is waited for. It takes
// half a minute: for so long a server below the proxy's revision counts as one that is behind.
func TestRewind(t *testing.T) {
	if testing.Short() {
		t.Skip("for 30 s the reflector waits for the revision that the server has lost")
	}
	t.Parallel()
	const crowd = 20
	r := newCrowdRig(t, func(c *Config) { c.SmallCollection = -1 })
	for i := range 10 {
		r.write(fmt.Sprint("map-", i), "before")
	}
	r.answers()
	all := r.follow(crowd)
	backup, err := r.maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	to, err := keepwatch.ParseRevision(backup.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		r.write(fmt.Sprint("undone-", i), "")
		r.write(fmt.Sprint("map-", i), "undone")
	}
	if err := r.maps.Delete(t.Context(), "map-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.arrive(all)
	undone := r.newest()
	r.server.Rewind(to)
	for i := range 5 { // fewer than were undone
		r.write(fmt.Sprint("map-", i), "after")
	}
	r.arrive(all)
	response, err := r.get(t.Context(), "/api/v1/configmaps?resourceVersion="+undone)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("a list at an undone revision: %s", response.Status)
	}
	for _, w := range all {
		if w.listed < 2 || w.listed > 3 {
			t.Errorf("a client has listed %d times", w.listed)
		}
	}
}
