package messages

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Errors that a client did not cause are logged.
func TestCausedByClient(t *testing.T) {
	disconnected, disconnect := context.WithCancel(t.Context())
	disconnect()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	<-late.Done()
	for _, test := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"a request whose client has disconnected", disconnected, errors.New("anything"), true},
		{"the same, without an error", disconnected, nil, true},
		{"a request that took too long", late, nil, false},
		{"no error", t.Context(), nil, false},
		{"any error", t.Context(), errors.New("etcdserver: no space"), false},
		{"a truncated response", t.Context(),
			errors.New("apiserver was unable to write a JSON response: write tcp a->b: write: broken pipe"), true},
		{"the same over HTTP/2", t.Context(),
			errors.New("apiserver was unable to close cleanly the response writer: http2: stream closed"), true},
		{"a response that can't be encoded", t.Context(),
			errors.New("apiserver was unable to write a JSON response: json: unsupported type"), false},
		{"a webhook disconnects", t.Context(), errors.New(`failed calling webhook "x": write: broken pipe`), false},
		{"etcd disconnects", t.Context(),
			errors.New("apiserver received an error that is not an metav1.Status: &errors.errorString{}: read: connection reset by peer"), false},
	} {
		if got := causedByClient(test.ctx, test.err); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	var logged []string
	handler := withoutClientDisconnects(func(_ context.Context, _ error, msg string, _ ...any) {
		logged = append(logged, msg)
	})
	for _, ctx := range []context.Context{disconnected, late} {
		handler(ctx, nil, "Timeout or abort while handling")
	}
	if len(logged) != 1 {
		t.Errorf("logged %q", logged)
	}
}
