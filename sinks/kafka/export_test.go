package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ClaimOnly is what a process does that ends when it has claimed the transactional id.
func (s *Sink) ClaimOnly(ctx context.Context, topics ...string) error {
	r, err := s.target.newReader()
	if err != nil {
		return err
	}
	defer r.client.Close()
	commit, err := s.findDecision(ctx, kadm.NewClient(r.client), scope{former: topics})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.claim(ctx, nil, claimTimeout(commit))
}
