package kube

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

// remoteServer is a server with simulated latency: it answers each request after delay
// (never, if negative) with the output of script.
type remoteServer struct {
	delay  time.Duration
	script func(s slowWriter)
}

// slowWriter writes a response. Its waits end when the client is gone.
type slowWriter struct {
	ctx context.Context
	w   io.Writer
}

func (s slowWriter) write(text string) { io.WriteString(s.w, text) }
func (s slowWriter) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

func (s remoteServer) CloseIdleConnections() {}

func (s remoteServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if s.delay < 0 {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	time.Sleep(s.delay) // of simulated time
	r, w := io.Pipe()
	context.AfterFunc(req.Context(), func() { r.CloseWithError(req.Context().Err()) })
	go func() {
		s.script(slowWriter{req.Context(), w})
		w.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: r, Request: req}, nil
}

func (s remoteServer) source(t *testing.T) *Source {
	return newSource(t, &rest.Config{Host: "http://remote.invalid", Transport: s}, Options{})
}

func TestIdleUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{delay: -1}.source(t)
		for _, request := range []func() error{
			func() error { _, err := s.List(t.Context(), keepwatch.ListRequest{}); return err },
			func() error { _, err := s.Watch(t.Context(), 5); return err },
			func() error { _, _, err := s.StreamList(t.Context(), 0, nil); return err },
		} {
			start := time.Now()
			wantFailure(t, request(), keepwatch.Idle, "pods: the server sent nothing for 2m10s")
			if took := time.Since(start); took != DefaultIdleTimeout {
				t.Errorf("noticed after %v", took)
			}
		}
	})
}

func TestIdleList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{script: func(s slowWriter) {
			s.write(`{"kind":"PodList",`)
			s.wait(time.Hour)
		}}.source(t)
		start := time.Now()
		_, err := s.List(t.Context(), keepwatch.ListRequest{})
		wantFailure(t, err, keepwatch.Idle, "list pods: the server sent nothing for 2m10s")
		if took := time.Since(start); took != DefaultIdleTimeout {
			t.Errorf("noticed after %v", took)
		}
	})
}

// Each byte restarts the idle timeout, also within a frame and white space.
func TestIdleWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{delay: 2 * time.Minute, script: func(s slowWriter) {
			for range 10 {
				s.wait(2 * time.Minute)
				s.write("\n")
			}
			s.write(podFrame("ADDED", "a", 6)[:20])
			s.wait(2 * time.Minute)
			s.write(podFrame("ADDED", "a", 6)[20:])
			s.wait(24 * time.Hour)
		}}.source(t)
		start := time.Now()
		batches, err := drain(open(t, s))
		wantFailure(t, err, keepwatch.Idle, "watch pods: the server sent nothing for 2m10s")
		wantHistory(t, batches, 5, 6, "ADDED a@6")
		if took := time.Since(start); took != 24*time.Minute+DefaultIdleTimeout {
			t.Errorf("noticed after %v", took)
		}
	})
}

// A slow consumer does not cause an idle timeout.
func TestIdleWithSlowConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{script: func(s slowWriter) {
			for i := range 10 {
				s.write(bookmarkFrame(6 + i))
			}
		}}.source(t)
		w := open(t, s)
		var batches []keepwatch.Batch
		for {
			time.Sleep(time.Hour) // of simulated time
			b, err := w.Next()
			if err != nil {
				wantFailure(t, err, keepwatch.Ended)
				break
			}
			batches = append(batches, b)
		}
		wantHistory(t, batches, 5, 15)
		if len(batches) != 10 {
			t.Errorf("%d batches, want each bookmark to end one", len(batches))
		}
	})
}

// A streaming list has a short idle timeout, its watch the usual one.
func TestIdleStreamList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{delay: time.Minute, script: func(s slowWriter) {
			for i := range 10 {
				s.wait(9 * time.Second)
				s.write(podFrame("ADDED", "a", 6+i))
			}
			s.wait(9 * time.Second)
			s.write(endFrame(20))
			s.wait(time.Minute)
			s.write(bookmarkFrame(21))
			s.wait(time.Hour)
		}}.source(t)
		var state collector
		revision, w, err := s.StreamList(t.Context(), 0, state.emit)
		if err != nil || revision != 20 || len(state.names) != 10 {
			t.Fatalf("got %v at %v, %v", state.names, revision, err)
		}
		defer w.Close()
		start := time.Now()
		batches, err := drain(w)
		wantFailure(t, err, keepwatch.Idle, "watch pods: the server sent nothing for 2m10s")
		wantHistory(t, batches, 20, 21)
		if took := time.Since(start); took != time.Minute+DefaultIdleTimeout {
			t.Errorf("noticed after %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := remoteServer{script: func(s slowWriter) {
			s.write(podFrame("ADDED", "a", 6))
			s.wait(time.Hour)
		}}.source(t)
		start := time.Now()
		_, _, err := s.StreamList(t.Context(), 0, (&collector{}).emit)
		wantFailure(t, err, keepwatch.StreamingListUnsupported, "list pods: the state did not end within 10s")
		if took := time.Since(start); took != listEndTimeout {
			t.Errorf("noticed after %v", took)
		}
	})
}

// The same with real connections that stay open without data.
func TestIdleHalfOpen(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		send(w, podFrame("ADDED", "a", 6))
		waitClosed(r)
	}
	overEach(t, answer, Options{IdleTimeout: 100 * time.Millisecond}, func(t *testing.T, s *Source) {
		w, err := s.Watch(t.Context(), 5) // a slow machine may not get further
		if err == nil {
			_, err = drain(w)
			w.Close()
		}
		wantFailure(t, err, keepwatch.Idle, "watch pods: the server sent nothing for 100ms")
	})
}
