package conform

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"
)

func conflicts(ctx context.Context, s *subject) (outcome, error) {
	old, err := s.create(ctx, "a", nil, "0")
	if err != nil {
		return outcome{}, err
	}
	current, err := s.update(ctx, old, nil, "1")
	if err != nil {
		return outcome{}, err
	}
	result := kept
	for _, request := range []struct {
		what, method string
		body         any
	}{
		{"an update with an old resourceVersion", http.MethodPut, s.body("a", nil, "2", old)},
		{"a deletion with an old resourceVersion", http.MethodDelete, precondition("resourceVersion", old.revision.String())},
		{"a deletion with another UID", http.MethodDelete, precondition("uid", "00000000-0000-0000-0000-000000000000")},
	} {
		a, err := s.do(ctx, request.method, old.key.Name, nil, asJSON, request.body)
		if err == nil && a.code >= http.StatusInternalServerError {
			err = s.unexpected(request.what+" of", a)
		}
		if err != nil {
			return outcome{}, err
		}
		if a.code != http.StatusConflict {
			result = result.and(broken("409 for "+request.what, a.String()))
		}
	}
	got, a, err := s.get(ctx, old.key.Name, nil)
	if err != nil {
		return outcome{}, err
	}
	if got == nil || got.revision != current.revision {
		result = result.and(broken(current.String()+", unchanged", fmt.Sprintf("%v, %d", got, a.code)))
	}
	return result, nil
}

func createsOnce(ctx context.Context, s *subject) (outcome, error) {
	const contenders = 8
	codes := make([]int, contenders)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range contenders {
		group.Go(func() error {
			a, err := s.do(groupCtx, http.MethodPost, "", nil, asJSON, s.body("a", nil, fmt.Sprint(i), nil))
			if codes[i] = a.code; err == nil && a.code >= http.StatusInternalServerError {
				err = s.unexpected("creating", a) // it may have succeeded
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return outcome{}, err
	}
	created, refused := 0, 0
	for _, code := range codes {
		switch code {
		case http.StatusCreated:
			created++
		case http.StatusConflict:
			refused++
		}
	}
	if created != 1 || refused != contenders-1 {
		return broken("201 once and 409 otherwise", fmt.Sprint(codes)), nil
	}
	return kept, nil
}
