package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
)

const (
	// requestTimeout bounds a request that is not a watch, unless the configuration has another bound.
	requestTimeout = time.Minute
	// maxBody bounds the answer to a request, in bytes.
	maxBody = 256 << 20
)

// waits bound how long a run waits for a server. Tests of broken servers shorten them.
type waits struct {
	event       time.Duration // for an event that a working server sends soon
	convergence time.Duration // until all watchers receive the last write
	// recovery is the time in which the server answers a request again, after a disturbance or while it throttles.
	recovery time.Duration
	// lag is the time in which a server that has issued a revision gets to it: behind a balancer there may be another
	// one, and the cache of each follows the writes. It begins anew with each answer of another kind: a server that has
	// started has a cache that is empty.
	lag time.Duration
}

var defaultWaits = waits{event: time.Minute, convergence: 2 * time.Minute, recovery: 5 * time.Minute,
	lag: 30 * time.Second}

// The media types of requests.
const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asMetadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	asCBOR     = "application/cbor"

	asMetadataEvents = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
)

// subject is a resource in a namespace, on the server that is judged.
type subject struct {
	client     *http.Client
	config     *rest.Config  // of the client, for WebSockets
	timeout    time.Duration // of a request that is not a watch
	waits      waits
	host       *url.URL
	base       string // the path of the resource's version
	resource   string
	title      string // in reports
	kind       string
	apiVersion string
	field      string // that has the value: data or spec
	protobuf   bool   // whether the resource has this encoding
	namespace  string
	run        string       // the run's name, which labels all its objects
	prefix     string       // of the names of the objects of the current rule
	future     bool         // whether it asks for revisions that do not exist yet: then that answer is final
	disturbed  *atomic.Bool // whether the disturbance of a storm has begun; nil outside of storms
}

// of returns the subject with names of a rule's own.
func (s *subject) of(rule string) *subject {
	own := *s
	own.prefix = s.prefix + strings.ReplaceAll(rule, ".", "-") + "-"
	return &own
}

// inFuture returns the subject for requests of revisions that do not exist yet.
func (s *subject) inFuture() *subject {
	own := *s
	own.future = true
	return &own
}

// answer is the answer to a request.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// status returns the Status in the answer to a request that failed; an empty one if there is none.
func (a answer) status() metav1.Status {
	var s metav1.Status
	if json.Unmarshal(a.body, &s) != nil || s.Kind != "Status" {
		return metav1.Status{}
	}
	return s
}

// String returns the answer's code and its message, or the beginning of its body.
func (a answer) String() string {
	if s := a.status(); s.Message != "" {
		return fmt.Sprintf("%d %s: %s", a.code, s.Reason, strings.TrimSpace(s.Message))
	}
	return fmt.Sprintf("%d %.200q", a.code, a.body)
}

// refused reports whether the server refuses a request as invalid.
func (a answer) refused() bool {
	return a.code == http.StatusBadRequest || a.code == http.StatusUnprocessableEntity
}

// query is the parameters of a request: names and values in turn.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return q
}

// do makes a request. It repeats requests that the server refuses temporarily. An error means that there is no answer.
func (s *subject) do(ctx context.Context, method, name string, q url.Values, accept string, body any) (answer, error) {
	return s.recovered(ctx, func() (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		response, err := s.open(ctx, method, name, q, http.Header{"Accept": {accept}}, body)
		if err != nil {
			return answer{}, err
		}
		defer response.Body.Close()
		read, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
		return answer{response.StatusCode, response.Header, read}, err
	})
}

// sleep waits, at most until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open makes a request whose answer is read by the caller.
func (s *subject) open(ctx context.Context, method, name string, q url.Values, header http.Header,
	body any) (*http.Response, error) {
	target := s.host.JoinPath(s.base, "namespaces", s.namespace, s.resource, name)
	target.RawQuery = q.Encode()
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return nil, err
	}
	maps.Copy(request.Header, header)
	if body != nil {
		request.Header.Set("Content-Type", asJSON)
	}
	return s.client.Do(request)
}

// unexpected is the error of a request that no rule is about and that failed.
func (s *subject) unexpected(what string, a answer) error {
	return fmt.Errorf("%s %s in namespace %s: %v", what, s.resource, s.namespace, a)
}

// body returns an object to write. A nil previous state creates it.
func (s *subject) body(name string, labels map[string]string, value string, previous *object) map[string]any {
	all := map[string]string{runLabel: s.run}
	maps.Copy(all, labels)
	metadata := map[string]any{"name": s.prefix + name, "namespace": s.namespace, "labels": all}
	if previous != nil {
		metadata["resourceVersion"], metadata["uid"] = previous.revision.String(), string(previous.uid)
	}
	return map[string]any{"apiVersion": s.apiVersion, "kind": s.kind, "metadata": metadata,
		s.field: map[string]any{"value": value}}
}

// create creates an object.
func (s *subject) create(ctx context.Context, name string, labels map[string]string, value string) (*object, error) {
	return s.written(s.do(ctx, http.MethodPost, "", nil, asJSON, s.body(name, labels, value, nil)))
}

// update replaces the last state of an object.
func (s *subject) update(ctx context.Context, previous *object, labels map[string]string,
	value string) (*object, error) {
	name := strings.TrimPrefix(previous.key.Name, s.prefix)
	return s.written(s.do(ctx, http.MethodPut, previous.key.Name, nil, asJSON, s.body(name, labels, value, previous)))
}

// written returns the state that a write has resulted in.
func (s *subject) written(a answer, err error) (*object, error) {
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK && a.code != http.StatusCreated {
		return nil, &refusedWrite{s.unexpected("writing", a), a}
	}
	return parseObject(a.body)
}

// remove deletes an object, and not another one that has its name meanwhile. More preconditions are names and values in
// turn.
func (s *subject) remove(ctx context.Context, o *object, more ...string) error {
	body := precondition(append([]string{"uid", string(o.uid)}, more...)...)
	a, err := s.do(ctx, http.MethodDelete, o.key.Name, nil, asJSON, body)
	if err != nil {
		return err
	}
	if a.code != http.StatusOK && a.code != http.StatusAccepted {
		return &refusedWrite{s.unexpected("deleting", a), a}
	}
	return nil
}

// precondition is the body of a deletion: names and values in turn.
func precondition(pairs ...string) map[string]any {
	all := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": all}
}

// refusedWrite is a write that the server answered with an error.
type refusedWrite struct {
	error
	answer answer
}

// forbids reports whether the user lacks a permission for the write.
func (r *refusedWrite) forbids() bool {
	return r.answer.code == http.StatusUnauthorized ||
		r.answer.code == http.StatusForbidden && !strings.HasSuffix(r.answer.status().Message, notReady)
}

// fill creates objects with numbered names: item-000, item-001, …
func (s *subject) fill(ctx context.Context, n int, labels func(i int) map[string]string,
	value string) ([]*object, error) {
	all := make([]*object, 0, n)
	for i := range n {
		o, err := s.create(ctx, fmt.Sprintf("item-%03d", i), labels(i), value)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// noLabels are the labels of objects whose labels do not matter.
func noLabels(int) map[string]string { return nil }

// get reads an object by its whole name.
func (s *subject) get(ctx context.Context, name string, q url.Values) (*object, answer, error) {
	a, err := s.do(ctx, http.MethodGet, name, q, asJSON, nil)
	if err != nil || a.code != http.StatusOK {
		return nil, a, err
	}
	o, err := parseObject(a.body)
	return o, a, err
}

// listed is the answer to a list.
type listed struct {
	revision  keepwatch.Revision
	items     []*object // of the current rule
	count     int       // of all items
	token     string
	remaining *int64
}

// list lists the objects. It returns nil and the answer if the server does not return a list.
func (s *subject) list(ctx context.Context, q url.Values) (*listed, answer, error) {
	a, err := s.do(ctx, http.MethodGet, "", q, asJSON, nil)
	if err != nil || a.code != http.StatusOK {
		return nil, a, err
	}
	l, err := s.parseList(a.body)
	return l, a, err
}

// mustList lists the objects where no rule allows an error.
func (s *subject) mustList(ctx context.Context, q url.Values) (*listed, error) {
	l, a, err := s.list(ctx, q)
	if err == nil && l == nil {
		err = s.unexpected("listing", a)
	}
	return l, err
}

// parseList parses a list of objects in JSON, or a Table of them.
func (s *subject) parseList(raw []byte) (*listed, error) {
	var parsed struct {
		Metadata struct {
			ResourceVersion, Continue string
			RemainingItemCount        *int64
		}
		Items []json.RawMessage
		Rows  []struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("list %.200q: %w", raw, err)
	}
	revision, err := parseRevision(parsed.Metadata.ResourceVersion)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	for _, row := range parsed.Rows {
		parsed.Items = append(parsed.Items, row.Object)
	}
	l := &listed{revision: revision, count: len(parsed.Items), token: parsed.Metadata.Continue,
		remaining: parsed.Metadata.RemainingItemCount}
	for _, item := range parsed.Items {
		o, err := parseObject(item)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(o.key.Name, s.prefix) {
			l.items = append(l.items, o)
		}
	}
	return l, nil
}

// exactly lists the state at a revision; nil if the server does not have it any more.
func (s *subject) exactly(ctx context.Context, revision keepwatch.Revision) (*listed, answer, error) {
	return s.list(ctx, query("resourceVersion", revision.String(), "resourceVersionMatch", "Exact"))
}

// statesOf returns the names, revisions and contents of objects, to compare two states.
func statesOf(all []*object) []string {
	var states []string
	for _, o := range all {
		states = append(states, o.state())
	}
	slices.Sort(states)
	return states
}
