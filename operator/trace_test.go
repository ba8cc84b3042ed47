package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// traces records the ended spans.
type traces struct {
	noop.TracerProvider
	mu    sync.Mutex
	begun int
	ended []string
}

func (t *traces) Tracer(string, ...trace.TracerOption) trace.Tracer { return &tracer{traces: t} }

type tracer struct {
	noop.Tracer
	*traces
}

func (t *tracer) Start(ctx context.Context, name string,
	options ...trace.SpanStartOption) (context.Context, trace.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun++
	config := trace.NewSpanStartConfig(options...)
	s := &span{traces: t.traces, name: name, attributes: config.Attributes(),
		context: trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{byte(t.begun)}, TraceFlags: trace.FlagsSampled,
		})}
	return trace.ContextWithSpan(ctx, s), s
}

type span struct {
	noop.Span
	traces     *traces
	name       string
	attributes []attribute.KeyValue
	context    trace.SpanContext
	status     string
}

func (s *span) SpanContext() trace.SpanContext { return s.context }

func (s *span) SetStatus(code codes.Code, description string) {
	s.status = fmt.Sprintf(" %s: %s", code, description)
}

func (s *span) End(...trace.SpanEndOption) {
	s.traces.mu.Lock()
	defer s.traces.mu.Unlock()
	about := ""
	for _, a := range s.attributes {
		about += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
	}
	s.traces.ended = append(s.traces.ended, s.name+about+s.status)
}

// TestHandlersAreTraced sets a global tracer provider, as a program does. The handler's
// context contains the span.
func TestHandlersAreTraced(t *testing.T) {
	all := &traces{}
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(all)
	defer otel.SetTracerProvider(before)
	bubble(t, func(t *testing.T, w *fakeServer, j *journal) {
		op := New("widgets.example.com")
		for _, id := range []string{"good", "bad"} {
			OnCreate(op, func(ctx context.Context, r *thing) error {
				j.add("%s %v", id, trace.SpanContextFromContext(ctx).SpanID())
				if id == "bad" {
					return Permanent(errors.New("no luck"))
				}
				return nil
			}, ID(id))
		}
		w.create("one", spec(1))
		r := startIn(t, w, op)
		j.want(t, "0 good 0100000000000000", "0 bad 0200000000000000")
		_ = r.end()
	})
	about := " k8s.resource.name=widgets.example.com k8s.namespace.name=default k8s.object.name=one k8s.object.uid=one-1 keepwatch.handler="
	want := []string{"widgets.example.com good" + about + "good", "widgets.example.com bad" + about + "bad Error: no luck"}
	if !slices.Equal(all.ended, want) {
		t.Errorf("got %q, want %q", all.ended, want)
	}
}
