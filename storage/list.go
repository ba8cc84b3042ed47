package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/features"
	apistorage "k8s.io/apiserver/pkg/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// GetList lists the objects at a key or below it. Which state it shows is the
// Kubernetes API's matter of resourceVersion, its match, limit and continue.
func (s *Storage) GetList(ctx context.Context, key string, options apistorage.ListOptions, into runtime.Object) error {
	l, err := s.list(ctx, key, options)
	if err != nil {
		return err
	}
	if s.ReadinessCheck() != nil {
		if l.predicate.Empty() && l.predicate.Limit > 0 || !l.recursive {
			return s.readError(s.etcd.GetList(ctx, key, options, into)) // it costs little
		}
		if err := s.readiness(ctx, patience); err != nil {
			return err
		}
	}
	listing, err := l.read(s, ctx)
	if err == nil {
		err = listing.fill(s, into)
	}
	elsewhere := errors.Is(err, ErrElsewhere) || l.of.consistent() && apistorage.IsTooLargeResourceVersion(err)
	if elsewhere {
		err = s.readError(s.etcd.GetList(ctx, key, options, into))
	}
	if l.of.consistent() {
		s.meter.consistent(err, elsewhere)
	}
	if err == nil && !elsewhere && utilfeature.DefaultFeatureGate.Enabled(features.ShardedListAndWatch) {
		l.predicate.SetShardInfoOnList(into)
	}
	return err
}

// list is a request for a list.
type list struct {
	scope
	of        wanted
	start     string // the path that it begins at, "" for the first page
	options   apistorage.ListOptions
	predicate apistorage.SelectionPredicate
	index     []apistorage.MatchValue
}

// wanted is the state that a list is to show.
type wanted struct {
	revision keepwatch.Revision
	match    metav1.ResourceVersionMatch // Exact, NotOlderThan, or "" for the newest
}

func (w wanted) consistent() bool { return w.match == "" }

func (w wanted) state(s *Storage, ctx context.Context) (*store.Snapshot, error) {
	switch w.match {
	case metav1.ResourceVersionMatchExact:
		return s.At(ctx, w.revision)
	case metav1.ResourceVersionMatchNotOlderThan:
		return s.notOlderThan(ctx, w.revision)
	}
	snapshot, err := s.newest(ctx)
	if err != nil && !apistorage.IsTooLargeResourceVersion(err) && !apistorage.IsUnreachable(err) {
		return nil, ErrElsewhere // which then says what is wrong with etcd
	}
	return snapshot, err
}

// list reads what is asked for.
func (s *Storage) list(ctx context.Context, key string, options apistorage.ListOptions) (list, error) {
	c, err := s.scope(key, options.Recursive)
	if err != nil {
		return list{}, err
	}
	l := list{scope: c, options: options, predicate: defaulted(options.Predicate)}
	if _, _, err := apistorage.ValidateListOptions(c.key, s.versioner, options); err != nil {
		return list{}, err
	}
	revision, err := s.versioner.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return list{}, err
	}
	l.of.revision = keepwatch.Revision(revision)
	switch {
	case c.recursive && options.Predicate.Continue != "":
		return l.continued()
	case options.ResourceVersionMatch != "":
		l.of.match = options.ResourceVersionMatch
	case c.recursive && options.Predicate.Limit > 0 && revision > 0:
		l.of.match = metav1.ResourceVersionMatchExact
	case options.ResourceVersion != "":
		l.of.match = metav1.ResourceVersionMatchNotOlderThan
	}
	if l.of.match == metav1.ResourceVersionMatchExact && revision == 0 {
		l.of.match = ""
	}
	if options.ResourceVersion == "0" || !c.recursive {
		l.predicate.Limit = 0
	}
	if !l.predicate.Empty() && l.of.match != metav1.ResourceVersionMatchExact {
		l.index = l.predicate.MatcherIndex(ctx)
	}
	return l, nil
}

// continued is the list that a continue token is part of.
func (l list) continued() (list, error) {
	start, revision, err := apistorage.DecodeContinue(l.options.Predicate.Continue, l.key)
	if err != nil {
		return list{}, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	l.start = l.path + strings.TrimPrefix(start, l.key)
	l.of = wanted{}
	if revision > 0 {
		l.of = wanted{keepwatch.Revision(revision), metav1.ResourceVersionMatchExact}
	}
	if l.options.ResourceVersion == "0" {
		l.predicate.Limit = 0 // as kube-apiserver does
	}
	return l, nil
}

// defaulted is a predicate whose selectors are not nil.
func defaulted(p apistorage.SelectionPredicate) apistorage.SelectionPredicate {
	if p.Label == nil {
		p.Label = labels.Everything()
	}
	if p.Field == nil {
		p.Field = fields.Everything()
	}
	return p
}

// candidates are the objects that the list can have: by an index if one helps.
func (l list) candidates(s *Storage, snapshot *store.Snapshot) iter.Seq[keepwatch.Object] {
	for _, by := range l.index {
		if index, ok := snapshot.Index(by.IndexName); ok {
			return s.byIndex(index, by.Value, l.scope)
		}
	}
	return l.objects(snapshot, l.start)
}
