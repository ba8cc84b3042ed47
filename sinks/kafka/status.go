package kafka

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/keepwatch/keepwatch/stream/sink"
)

// Status connects and reads the state topic. See [sink.Reader].
func (s *Sink) Status(ctx context.Context) ([]sink.Status, error) {
	all, err := s.target.status(ctx)
	if err != nil {
		return nil, (&Sink{target: s.target}).failure(err)
	}
	return all, nil
}

func (t target) status(ctx context.Context) ([]sink.Status, error) {
	r, err := t.newReader()
	if err != nil {
		return nil, err
	}
	defer r.client.Close()
	_, missing, err := describe(ctx, kadm.NewClient(r.client), []string{t.state})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, refusef("there is no topic %s of keepwatch sync", t.state)
	}
	f := newFold()
	if err := r.read(ctx, f); err != nil {
		return nil, err
	}
	var all []sink.Status
	for _, c := range f.cursors {
		all = append(all, c.Status())
	}
	slices.SortFunc(all, func(a, b sink.Status) int {
		return cmp.Or(cmp.Compare(a.ID.Resource, b.ID.Resource), cmp.Compare(a.ID.Namespace, b.ID.Namespace))
	})
	return all, nil
}
