package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/pause"
	"github.com/keepwatch/keepwatch/reflector"
	"github.com/keepwatch/keepwatch/server/customcolumns"
	"github.com/keepwatch/keepwatch/server/proxy/internal/upstream"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/store"
)

// definitions follows the definitions of custom resources, from the first Table of one on: their columns, and when they
// change. It is safe for concurrent use.
type definitions struct {
	reflector *reflector.Reflector
	store     *store.Store
	begin     chan struct{} // is closed by needed
	needed    func()
}

// definition is what Tables depend on of a definition.
type definition struct {
	key      keepwatch.Key
	uid      keepwatch.UID
	revision keepwatch.Revision
	identity string // the UID and the generation, which each change of the specification raises
	// columns are those of each version whose objects can be no lists.
	columns map[string][]apiextensionsv1.CustomResourceColumnDefinition
}

// Key returns the name: widgets.example.com.
func (d *definition) Key() keepwatch.Key { return d.key }

// UID returns the UID.
func (d *definition) UID() keepwatch.UID { return d.uid }

// Revision returns the resourceVersion.
func (d *definition) Revision() keepwatch.Revision { return d.revision }

func newDefinitions(server *rest.Config) (*definitions, error) {
	source, err := upstream.NewVerified(server, kube.Options{
		Resource: apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), Decode: decodeDefinition,
	})
	if err != nil {
		return nil, err
	}
	d := &definitions{store: store.New(store.Options{}), begin: make(chan struct{})}
	d.needed = sync.OnceFunc(func() { close(d.begin) })
	d.reflector = reflector.New(source, d.store, reflector.Options{StartupDeadline: -1})
	return d, nil
}

// decodeDefinition reads a definition in JSON. It keeps nothing of its schemas.
func decodeDefinition(raw kube.Raw) (keepwatch.Object, error) {
	d := &definition{key: raw.Key, uid: raw.UID, revision: raw.Revision,
		columns: map[string][]apiextensionsv1.CustomResourceColumnDefinition{}}
	d.identity = fmt.Sprint(raw.UID, " at ", raw.Revision) // if it cannot be read
	var read apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(raw.Body, &read); err != nil {
		return d, nil // its Tables are forwarded
	}
	d.identity = string(raw.UID) + "/" + strconv.FormatInt(read.Generation, 10)
	for _, version := range read.Spec.Versions {
		if !customcolumns.MayBeLists(&read, version.Name) {
			d.columns[version.Name] = version.AdditionalPrinterColumns
		}
	}
	return d, nil
}

// run follows the definitions from the first need on until ctx ends. It calls changed after each change.
func (d *definitions) run(ctx context.Context, changed func()) {
	select {
	case <-d.begin:
	case <-ctx.Done():
		return
	}
	var running sync.WaitGroup
	running.Go(func() { _ = d.reflector.Run(ctx) }) // without it no Table of a custom resource is answered
	defer running.Wait()
	for seen := d.store.Snapshot(); ctx.Err() == nil; {
		_, now, newer := d.store.Since(seen, 1)
		if now != seen {
			seen = now
			changed()
			continue
		}
		select {
		case <-newer:
		case <-ctx.Done():
		}
	}
}

// of returns the definition of a resource, if the definitions are followed without a gap, and it is there.
func (d *definitions) of(resource schema.GroupResource) (*definition, bool) {
	if d.reflector.Progress().State != reflector.Live {
		return nil, false
	}
	o, ok := d.store.Snapshot().Get(keepwatch.Key{Name: resource.String()})
	if !ok {
		return nil, false
	}
	found, ok := o.(*definition)
	return found, ok
}

// definitionsPoll is how often await looks whether the definitions are followed. Nothing reports that.
const definitionsPoll = 20 * time.Millisecond

// await returns the definition of a resource when the definitions are followed. It fails if the proxy may not follow
// them, if there is none, or when ctx ends.
func (d *definitions) await(ctx context.Context, resource schema.GroupResource) (*definition, error) {
	d.needed()
	for {
		found, ok := d.of(resource)
		state := d.reflector.Progress().State
		switch {
		case ok:
			return found, nil
		case state == reflector.Live, state == reflector.Forbidden, state == reflector.Absent:
			return nil, fmt.Errorf("the definition of %s is not known: %s", resource, state)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		_ = pause.For(ctx, definitionsPoll)
	}
}
