package conform

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/transport/websocket"
	"k8s.io/streaming/pkg/httpstream"
)

func watchesOverWebSocket(ctx context.Context, s *subject) (outcome, error) {
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	q := query("resourceVersion", start.revision.String())
	early, err := s.watchOverWebSocket(ctx, q)
	if refused := (*httpstream.UpgradeFailureError)(nil); errors.As(err, &refused) {
		return notOffered("the server refuses a WebSocket: " + refused.Error()), nil
	}
	if err != nil {
		return outcome{}, err
	}
	defer early.stop()
	want, err := s.story(ctx)
	if err != nil {
		return outcome{}, err
	}
	result, err := early.expect(ctx, want...)
	if err != nil || result.verdict != Kept {
		return result, err
	}
	late, err := s.watchOverWebSocket(ctx, q)
	if err != nil {
		return outcome{}, err
	}
	defer late.stop()
	return late.expect(ctx, want...)
}

// watchOverWebSocket opens a watch over a WebSocket. It repeats a request that the server refuses temporarily. The
// error is an UpgradeFailureError if the server does not switch protocols.
func (s *subject) watchOverWebSocket(ctx context.Context, q url.Values) (w *stream, err error) {
	_, _ = s.recovered(ctx, func() (answer, error) { // it has no error
		w, err = s.dial(ctx, q)
		if refused, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
			if status, ok := errors.AsType[*apierrors.StatusError](refused.Cause); ok {
				return answer{code: int(status.ErrStatus.Code)}, nil
			}
		}
		return answer{}, nil
	})
	return w, err
}

// dial opens a watch over a WebSocket. Each message has one event.
func (s *subject) dial(ctx context.Context, q url.Values) (*stream, error) {
	transport, holder, err := websocket.RoundTripperFor(s.config)
	if err != nil {
		return nil, err
	}
	q.Set("watch", "true")
	target := s.host.JoinPath(s.base, "namespaces", s.namespace, s.resource)
	target.RawQuery = q.Encode()
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	request.Header.Set("Origin", s.host.String()) // which servers require
	// Without a subprotocol, a watch sends its events as text.
	conn, err := websocket.Negotiate(transport, holder, request, "")
	if err != nil {
		cancel()
		return nil, err
	}
	conn.SetReadLimit(maxFrame)
	return s.follow(ctx, cancel, conn, func() (e event, err error) {
		_, message, err := conn.NextReader()
		if err != nil {
			return e, err
		}
		text, err := io.ReadAll(message)
		if err != nil {
			return e, err
		}
		return e, json.Unmarshal(text, &e)
	}), nil
}
