package kube

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/internal/pings"
)

// A server whose definition of a type changes (a default is added, a field pruned, a conversion switched) ends the
// watches of the type, lets clients resume, and does not tell that unchanged revisions look different now (kubernetes
// #74105, #123074). A server of a new version does the same for all types. So a source asks, after a watch was opened,
// whether the definition is the one that it knows. If it is not, the watch ends with Redefined, and the list that
// follows shows the difference.
//
// A target that outlives the source (a process that starts again, a version of the type that replaces another one)
// stores the definition that has shown its state, and sets it in the next source: what has changed meanwhile no watch
// shows, either.

const (
	// definitionDelay is how long a watch is open before the source asks: a server publishes OpenAPI documents a
	// second or two after a definition has changed. definitionJitter is the random part: the lists of many clients are
	// spread over it.
	definitionDelay  = 5 * time.Second
	definitionJitter = 30 * time.Second
	// definitionPeriod bounds how often a source asks, however often its watches end. It doubles up to
	// maxDefinitionPeriod while the answers alternate: servers of two versions stand behind one address. While requests
	// fail it doubles maxFailedDoublings times, to about the time that a watch is open.
	definitionPeriod    = time.Minute
	maxDefinitionPeriod = 30 * time.Minute
	maxFailedDoublings  = 3
	// definitionTimeout bounds the requests. Half of it is for those whose answers sources share, so that one that waits
	// for another one's answer receives what it has of it.
	definitionTimeout = 10 * time.Second
	// definitionLag is the time from a change that was noticed to the list that shows it: a server stores the definition,
	// and follows it to serve the type. A list in between would show objects as they were, and nothing would tell that.
	definitionLag = 5 * time.Second
	// definitionsAge is how old an answer may be that the sources of a client share: less than definitionDelay by what a
	// server needs to publish a change.
	definitionsAge = 2 * time.Second
	// maxDefinitions bounds a response: the index of OpenAPI documents has a line for each group version.
	maxDefinitions = 8 << 20
)

// definition is what a server says of the definition of a resource. What is not known is empty. The JSON names are in
// the states of streams.
type definition struct {
	Version string `json:"version,omitempty"` // of the type, which the source requests
	Server  string `json:"server,omitempty"`  // its version
	// the address of the group version's OpenAPI document, which has its hash
	Schema     string `json:"schema,omitempty"`
	Generation string `json:"generation,omitempty"` // of the CustomResourceDefinition, if there is one, and it may be read
}

// differs reports whether objects can look different by another definition. A group version's document also changes
// with other types, so that the generation decides if both have one.
func (d definition) differs(now definition) bool {
	switch {
	case differ(d.Version, now.Version), differ(d.Server, now.Server):
		return true
	case d.Generation != "" && now.Generation != "":
		return d.Generation != now.Generation
	}
	return differ(d.Schema, now.Schema)
}

// differ reports whether both texts are known, and differ.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// merged returns now, with what is known of d only.
func (d definition) merged(now definition) definition {
	for _, part := range [...]struct{ known, now *string }{
		{&d.Version, &now.Version}, {&d.Server, &now.Server}, {&d.Schema, &now.Schema}, {&d.Generation, &now.Generation},
	} {
		if *part.now == "" {
			*part.now = *part.known
		}
	}
	return now
}

// definitionWatch is what a source knows of its definition.
type definitionWatch struct {
	mu    sync.Mutex
	known definition
	next  time.Time // when to ask next; zero if no watch was opened since the last answer
	asked time.Time
	// before is what was known before the last change, at changedAt. returns counts the changes in a row that led back to
	// it, and is halved with each answer that comes two periods later or more.
	before    definition
	changedAt time.Time
	returns   int
	// failed counts the incomplete answers in a row.
	failed int
	// generated: no answer after the one with a new generation had a schema. The schema is compared once more, because a
	// server publishes it later, and the list may have been older. The first generation of all may be new, too.
	generated bool
	// changed is true from a change until the next list: no watch shows what it has changed.
	changed bool
	// shown is the definition that the newest list has shown, as far as it is known, and text the same for the target,
	// which asks with each batch.
	shown definition
	text  string
	// stored is true if the target stores shown. Then the definition is read before a list and before a watch is
	// continued.
	stored bool
	// early is true if the definition is read before the first list: otherwise a change between that and the first answer
	// is not noticed.
	early bool
	read  bool // the server has answered at least in part: what is missing, watches ask for
}

// due returns how long a watch that is opened now waits before it asks. Watches that end earlier do not postpone it.
func (d *definitionWatch) due() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next.IsZero() {
		d.next = time.Now().Add(definitionDelay + rand.N(definitionJitter))
		if earliest := d.asked.Add(d.period()); !d.asked.IsZero() && d.next.Before(earliest) {
			d.next = earliest
		}
	}
	return time.Until(d.next)
}

// period returns the time between two questions. d.mu is locked.
func (d *definitionWatch) period() time.Duration {
	return min(definitionPeriod<<max(d.returns, min(d.failed-1, maxFailedDoublings)), maxDefinitionPeriod)
}

// answered records an answer, which is complete unless a request has failed. The first one is what the newest list has
// shown.
func (d *definitionWatch) answered(now definition, complete bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	late := d.generated && differ(d.known.Schema, now.Schema)
	if d.failed++; complete {
		d.failed = 0
	}
	first := d.asked.IsZero() && d.known.Generation == "" && now.Generation != ""
	d.generated = first || differ(d.known.Generation, now.Generation) || d.generated && now.Schema == ""
	switch {
	case late || d.known.differs(now):
		d.changed, d.changedAt = true, time.Now()
		if d.before != (definition{}) && !d.before.differs(now) {
			d.returns = min(d.returns+1, 10)
		} else {
			d.returns = 0
		}
		d.before = d.known
	case complete && time.Since(d.changedAt) >= 2*d.period():
		d.returns /= 2
	}
	before := d.known
	d.known, d.next, d.asked = before.merged(now), time.Time{}, time.Now()
	if now.Schema == "" && differ(before.Server, now.Server) && !d.generated {
		// It is the old server's. The new one's differs as a rule, and would lead to a second list.
		d.known.Schema = ""
	}
	d.read = d.read || complete || now.Server != "" || now.Schema != "" || now.Generation != ""
	if !d.changed {
		d.show(d.known)
	}
}

// listed records that a list begins.
func (d *definitionWatch) listed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = false
	d.show(d.known)
}

// continueFrom records the definition that has shown the target's state, which may be unknown.
func (d *definitionWatch) continueFrom(shown definition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = true
	if shown == (definition{}) {
		return
	}
	d.changed = d.changed || shown.differs(d.known)
	d.known = shown.merged(d.known)
	d.show(shown)
}

// show sets the definition that the newest list has shown. d.mu is locked.
func (d *definitionWatch) show(shown definition) {
	if shown == d.shown {
		return
	}
	text, err := json.Marshal(shown)
	if err != nil {
		panic(err) // texts cannot fail
	}
	d.shown, d.text = shown, string(text)
}

// Definition returns the definition by which the newest list has shown its objects, as text for [Source.SetDefinition],
// empty if it is not known. It is safe for concurrent use.
func (s *Source) Definition() string {
	s.definition.mu.Lock()
	defer s.definition.mu.Unlock()
	return s.definition.text
}

// SetDefinition sets the definition that has shown the target's state, which another source of the resource has
// returned: if it is not the server's any more, the next watch fails with Redefined. The text is empty if the target
// has no state, or does not know. It must not be called while another method runs.
func (s *Source) SetDefinition(text string) {
	var shown definition
	_ = json.Unmarshal([]byte(text), &shown) // what cannot be read is not known
	s.definition.continueFrom(shown)
}

// readDefinition asks for the definition unless the server has answered before, if it is read early, or if the target
// stores it: the process may end before a watch asks. It reports whether the definition has changed since the newest
// list.
func (s *Source) readDefinition(ctx context.Context) (changed bool) {
	d := &s.definition
	d.mu.Lock()
	stored, due := d.stored, (d.stored || d.early) && !d.read
	d.mu.Unlock()
	if due {
		d.answered(s.definitions.of(ctx, s.resource))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return stored && d.changed
}

// failure returns Redefined if the definition has changed since the newest list, or nil.
func (d *definitionWatch) failure(op string) *keepwatch.Failure {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.changed {
		return nil
	}
	return keepwatch.Failed(keepwatch.Redefined,
		"%s: the definition of the type has changed, or the version of the server: objects can look different at equal resource versions", op)
}

// watchDefinition ends a watch with Redefined if the definition has changed. It asks until the server has answered, or
// ctx ends.
func (s *Source) watchDefinition(ctx context.Context, w *watch) {
	for complete := false; !complete; {
		timer := time.NewTimer(s.definition.due())
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		var now definition
		now, complete = s.definitions.of(ctx, s.resource)
		if ctx.Err() != nil {
			return
		}
		s.definition.answered(now, complete)
		if failure := s.definition.failure(w.frames.op); failure != nil {
			_ = pause.For(ctx, s.definitions.lag)
			w.end(failure)
			return
		}
	}
}

// Definitions reads the definitions of a server's resources. The sources of one client may share it: then they share
// its answers.
type Definitions struct {
	client *http.Client
	root   *url.URL
	lag    time.Duration // definitionLag, but in tests

	// asking has an element while a source asks, and guards the fields below. A source waits for its turn no longer than
	// its own watch is open.
	asking   chan struct{}
	read     time.Time // of the newest answer
	complete bool      // it is
	version  string
	schemas  map[string]string // by path: "apis/apps/v1"
}

// NewDefinitions returns the definitions of the server of a client. It sends no request.
func NewDefinitions(cfg *rest.Config) (*Definitions, error) {
	cfg = rest.CopyConfig(pings.Config(cfg))
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent()
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	root, err := serverURL(cfg)
	if err != nil {
		return nil, err
	}
	return &Definitions{client: &http.Client{Transport: transport}, root: root, lag: definitionLag,
		asking: make(chan struct{}, 1)}, nil
}

// of returns what the server says of a resource now. The answer is complete unless a request has failed, or ctx has
// ended: what the server refuses it will not say later, either.
func (d *Definitions) of(ctx context.Context, resource schema.GroupVersionResource) (now definition, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	now, complete = d.shared(ctx, resource.GroupVersion())
	if strings.Contains(resource.Group, ".") {
		generation, answered := d.generation(ctx, resource.GroupResource())
		now.Generation, complete = generation, complete && answered
	}
	return now, complete
}

// shared returns what all resources of a client share: also that requests fail, unless the source that sent them has
// given up.
func (d *Definitions) shared(ctx context.Context, of schema.GroupVersion) (now definition, complete bool) {
	select {
	case d.asking <- struct{}{}:
		defer func() { <-d.asking }()
	case <-ctx.Done():
		return definition{Version: of.Version}, false
	}
	if time.Since(d.read) > definitionsAge {
		var version struct{ GitVersion string }
		var index struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		asking, cancel := context.WithTimeout(ctx, definitionTimeout/2)
		defer cancel()
		var versioned bool
		var request sync.WaitGroup
		request.Go(func() { versioned = d.get(asking, "/version", "application/json", &version) })
		d.complete = d.get(asking, "/openapi/v3", "application/json", &index)
		request.Wait()
		d.complete = d.complete && versioned
		d.version, d.schemas = version.GitVersion, map[string]string{}
		for path, document := range index.Paths {
			d.schemas[path] = document.ServerRelativeURL
		}
		if ctx.Err() == nil {
			d.read = time.Now()
		}
	}
	path := "apis/" + of.String()
	if of.Group == "" {
		path = "api/" + of.Version
	}
	return definition{Version: of.Version, Server: d.version, Schema: d.schemas[path]}, d.complete
}

// generation returns the UID and the generation of a CustomResourceDefinition, which every change of its specification
// raises; nothing if there is none, or it may not be read. It reports whether the server has answered.
func (d *Definitions) generation(ctx context.Context, of schema.GroupResource) (generation string, answered bool) {
	var crd struct {
		Metadata struct {
			UID        string
			Generation int64
		}
	}
	const (
		path     = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
		metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
	)
	answered = d.get(ctx, path+url.PathEscape(of.String()), metadata, &crd)
	if crd.Metadata.Generation == 0 {
		return "", answered
	}
	return crd.Metadata.UID + "/" + strconv.FormatInt(crd.Metadata.Generation, 10), answered
}

// get reads a JSON document into a value, which stays empty if the server does not answer, or refuses. It reports
// whether the server has answered. One that is overloaded or fails has not, nor one that does not accept credentials,
// which may just be replaced.
func (d *Definitions) get(ctx context.Context, path, accept string, into any) (answered bool) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, d.root.JoinPath(path).String(), nil)
	if err != nil {
		return true // as with each further attempt
	}
	q.Header.Set("Accept", accept)
	response, err := d.client.Do(q)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDefinitions))
	switch code := response.StatusCode; {
	case err != nil, code == http.StatusTooManyRequests, code == http.StatusUnauthorized,
		code >= http.StatusInternalServerError:
		return false
	case code == http.StatusOK:
		_ = json.Unmarshal(text, into) // another program's answer says nothing
	}
	return true
}
