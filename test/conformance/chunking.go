package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/keepwatch/keepwatch/test/peer"
)

// templates is how many objects are read in chunks.
const templates = 400

// Chunking runs the tests that correspond to "[sig-api-machinery] Servers with support for
// API chunking". It compacts the history, and restarts the server.
func Chunking(t *testing.T, server *peer.Server) {
	client := connect(t, server, "chunks").CoreV1().PodTemplates("chunks")
	fill(t, client)
	t.Run("chunks", func(t *testing.T) { chunks(t, client) })
	t.Run("expired", func(t *testing.T) { expired(t, server, client) })
}

func fill(t *testing.T, client typed.PodTemplateInterface) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range templates {
		group.Go(func() error {
			_, err := client.Create(ctx, &corev1.PodTemplate{
				ObjectMeta: metav1.ObjectMeta{Name: template(i)},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
				}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func template(i int) string { return fmt.Sprintf("template-%04d", i) }

// pager reads a list in chunks.
type pager struct {
	*testing.T
	client   typed.PodTemplateInterface
	limit    int64
	token    string
	revision string // of the chunks; empty before the first
	found    int
}

// next reads a chunk: the following objects, at most the limit, and the number of the
// remaining ones. All chunks have one revision.
func (r *pager) next(ctx context.Context) error {
	list, err := r.client.List(ctx, metav1.ListOptions{Limit: r.limit, Continue: r.token})
	if err != nil {
		return err
	}
	if r.revision != "" && list.ResourceVersion != r.revision {
		r.Errorf("behind a chunk of revision %s comes one of %s", r.revision, list.ResourceVersion)
	}
	if int64(len(list.Items)) > r.limit {
		r.Errorf("a chunk of %d, the limit is %d", len(list.Items), r.limit)
	}
	for _, o := range list.Items {
		if want := template(r.found); o.Name != want {
			r.Fatalf("%s comes in the place of %s", o.Name, want)
		}
		r.found++
	}
	r.token, r.revision = list.Continue, list.ResourceVersion
	switch remain := list.RemainingItemCount; {
	case r.token == "" && remain != nil:
		r.Errorf("%d remain behind the last chunk", *remain)
	case r.token != "" && (remain == nil || int(*remain)+r.found != templates):
		r.Errorf("behind %d of %d remain %v", r.found, templates, remain)
	}
	return nil
}

// rest reads all further chunks.
func (r *pager) readAll() {
	r.Helper()
	for r.token != "" {
		if err := r.next(r.Context()); err != nil {
			r.Fatal(err)
		}
	}
	if r.found != templates {
		r.Errorf("%d of %d objects", r.found, templates)
	}
}

// "should return chunks of results for list calls".
func chunks(t *testing.T, client typed.PodTemplateInterface) {
	for range 3 {
		r := &pager{T: t, client: client, limit: 17}
		if err := r.next(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.readAll()
	}
	all := &pager{T: t, client: client, limit: templates + 1}
	if err := all.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.readAll()
}

// "should support continue listing from the last key if the original version has
// been compacted away, though the list is inconsistent".
func expired(t *testing.T, server *peer.Server, client typed.PodTemplateInterface) {
	const tenth = templates / 10
	r := &pager{T: t, client: client, limit: tenth}
	if err := r.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, err := client.Get(t.Context(), template(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first.Labels = map[string]string{"changed": "since"} // so that there is another revision to compact at
	if _, err := client.Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A running server may still have the history that etcd has compacted.
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := r.revision
	err = r.next(t.Context())
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().ListMeta.Continue == "" {
		t.Fatalf("a chunk of a revision that is compacted: %v", err)
	}
	r.token, r.revision = status.Status().ListMeta.Continue, ""
	if err := r.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.revision == before || r.found != 2*tenth {
		t.Errorf("the list goes on at revision %s with %d objects; it began at %s", r.revision, r.found-tenth, before)
	}
	r.readAll()
}
