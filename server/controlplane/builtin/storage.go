package builtin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/keepwatch/keepwatch/server/controlplane/columns"
	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// Served is a built-in resource in its stored version.
type Served struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Store      *genericregistry.Store
}

// Settings are those of single kinds.
type Settings struct {
	// ServiceRanges have the addresses that Services get.
	ServiceRanges services.Ranges
	// EventTTL is the time from an Event's last write to its deletion, in whole seconds.
	EventTTL time.Duration
}

// Install serves all built-in resources on server, which has this config, with its storage options. rights and
// identities answer the reviews and the requests of tokens. Requests must pass [Routes.Before] first.
func (r *Registry) Install(server *genericapiserver.GenericAPIServer, config *genericapiserver.Config, routes *Routes,
	settings Settings, rights Authorizer, identities Identities) ([]Served, error) {
	var resources []Served
	byVersion := map[schema.GroupVersion]map[string]rest.Storage{}
	for _, k := range table {
		store, served, err := r.restStorage(k, config.RESTOptionsGetter)
		if err != nil {
			return nil, fmt.Errorf("storage of %s: %w", k.groupResource(), err)
		}
		resources = append(resources, Served{k.gv.WithResource(k.resource), k.kindName(), k.namespaced, store})
		for _, gv := range k.served() {
			if byVersion[gv] == nil {
				byVersion[gv] = map[string]rest.Storage{}
			}
			for path, storage := range served {
				byVersion[gv][path] = storage
			}
		}
	}
	stores := storesOf(resources)
	giveAddresses(stores[corev1.Resource("services")], settings.ServiceRanges)
	stores[corev1.Resource("events")].TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) {
		return uint64(settings.EventTTL / time.Second), nil
	}
	maps.Copy(byVersion[corev1.SchemeGroupVersion], podSubresources(stores))
	byVersion[corev1.SchemeGroupVersion]["serviceaccounts/token"] = newTokenREST(stores, identities.Issuer)
	for _, question := range reviews {
		if byVersion[question.gv] == nil {
			byVersion[question.gv] = map[string]rest.Storage{}
		}
		byVersion[question.gv][question.resource] = &reviewREST{question, rights}
	}
	byVersion[authenticationv1.SchemeGroupVersion]["tokenreviews"] = &tokenReviewREST{identities}
	return resources, installation{Registry: r, server: server, config: config, byVersion: byVersion}.run(routes)
}

// Groups returns the API groups in the order of the table, then those of second versions and of
// reviews. The core group has no name.
func Groups() []string {
	var order []string
	seen := map[string]bool{}
	add := func(group string) {
		if !seen[group] {
			seen[group] = true
			order = append(order, group)
		}
	}
	for _, k := range table {
		add(k.gv.Group)
	}
	for _, k := range table {
		if !k.alias.Empty() {
			add(k.alias.Group)
		}
	}
	for _, question := range reviews {
		add(question.gv.Group)
	}
	return order
}

// Versions returns the versions of all groups, without repetition.
func Versions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	add := func(gv schema.GroupVersion) {
		if !slices.Contains(versions, gv) {
			versions = append(versions, gv)
		}
	}
	for _, k := range table {
		for _, gv := range k.served() {
			add(gv)
		}
	}
	for _, question := range reviews {
		add(question.gv)
	}
	return versions
}

// resourceREST is a kind's main resource.
type resourceREST struct {
	*genericregistry.Store
	kind *kind
}

func (r *resourceREST) ShortNames() []string { return r.kind.short }

func (r *resourceREST) Categories() []string {
	if r.kind.category == "" {
		return nil
	}
	return []string{r.kind.category}
}

// restStorage returns the REST storages of a kind by their path: the resource, which uses the store,
// and its subresources.
func (r *Registry) restStorage(k *kind,
	getter generic.RESTOptionsGetter) (*genericregistry.Store, map[string]rest.Storage, error) {
	rules := strategy{k, r.Scheme, names.SimpleNameGenerator}
	store := &genericregistry.Store{
		NewFunc:                   k.newObject,
		NewListFunc:               k.newList,
		PredicateFunc:             k.match,
		DefaultQualifiedResource:  k.groupResource(),
		SingularQualifiedResource: k.singular(),
		CreateStrategy:            rules,
		UpdateStrategy:            rules,
		DeleteStrategy:            rules.deletion(),
		ResetFieldsStrategy:       rules,
		ReturnDeletedObject:       k.returnsDeleted,
		TableConvertor:            columns.For(k.groupResource()),
		BeginUpdate:               clearKinds,
	}
	options := &generic.StoreOptions{RESTOptions: getter, AttrFunc: k.attributes, TriggerFunc: k.triggers(),
		Indexers: k.indexers()}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, nil, err
	}
	main := &resourceREST{store, k}
	served := map[string]rest.Storage{k.resource: main}
	if _, ok := k.object.(*corev1.Namespace); ok {
		store.ShouldDeleteDuringUpdate = deleteFinalizedNamespace
		served[k.resource] = &namespaceREST{main, store}
		finalize := finalizeStrategy{rules}
		served[k.resource+"/finalize"] = &subresource{withRules(store, finalize, finalize)}
	}
	if _, ok := k.object.(*certificatesv1.CertificateSigningRequest); ok {
		maps.Copy(served, csrREST(k, store, csrStrategy{rules}))
	} else if k.status != noStatus {
		status := statusStrategy{rules}
		served[k.resource+"/status"] = &subresource{withRules(store, status, status)}
	}
	if k.replicas != nil {
		served[k.resource+"/scale"] = &scaleREST{k, store}
	}
	return store, served, nil
}

// clearKinds clears apiVersion and kind of both objects of an update. Server-side apply sets them in the old object,
// which has the type of the served version already. With them, the object would differ from an equal new one, and
// applying it again would write the time in managedFields.
func clearKinds(_ context.Context, obj, old runtime.Object,
	_ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
	for _, o := range []runtime.Object{obj, old} {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return func(context.Context, bool) {}, nil
}

// giveAddresses adds the hooks that give Services their addresses. The store of /status is a copy that was made before,
// without them.
func giveAddresses(store *genericregistry.Store, ranges services.Ranges) {
	addresses := services.NewAddresses(ranges, func(ctx context.Context, address string) (*corev1.ServiceList, error) {
		all := store.PredicateFunc(labels.Everything(), fields.Everything())
		found, err := store.ListPredicate(request.WithNamespace(ctx, metav1.NamespaceAll), services.Having(address, all), nil)
		if err != nil {
			return nil, err
		}
		return found.(*corev1.ServiceList), nil
	})
	store.BeginCreate, store.AfterCreate, store.AfterUpdate = addresses.BeginCreate, addresses.AfterCreate,
		addresses.AfterUpdate
	store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object,
		options *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		if _, err := clearKinds(ctx, obj, old, options); err != nil {
			return nil, err
		}
		return addresses.BeginUpdate(ctx, obj, old, options)
	}
}

func storesOf(resources []Served) map[schema.GroupResource]*genericregistry.Store {
	stores := map[schema.GroupResource]*genericregistry.Store{}
	for _, served := range resources {
		stores[served.Resource.GroupResource()] = served.Store
	}
	return stores
}

// podSubresources returns what is served of pods besides their status, and bindings.
func podSubresources(stores map[schema.GroupResource]*genericregistry.Store) map[string]rest.Storage {
	pods, budgets := stores[corev1.Resource("pods")], stores[policyv1.Resource("poddisruptionbudgets")]
	binding, connect := &bindingREST{pods}, containers{pods, stores[corev1.Resource("nodes")]}
	return map[string]rest.Storage{
		"bindings":         &legacyBindingREST{binding},
		"pods/binding":     binding,
		"pods/eviction":    &evictionREST{withStatusRules(pods), withStatusRules(budgets)},
		"pods/log":         &logREST{connect},
		"pods/exec":        &streamREST{connect, &corev1.PodExecOptions{}},
		"pods/attach":      &streamREST{connect, &corev1.PodAttachOptions{}},
		"pods/portforward": &streamREST{connect, &corev1.PodPortForwardOptions{}},
	}
}

// withStatusRules returns the same store with the rules of /status.
func withStatusRules(store *genericregistry.Store) *genericregistry.Store {
	status := statusStrategy{store.UpdateStrategy.(strategy)}
	return withRules(store, status, status)
}

// withRules returns the same store with another strategy for updates.
func withRules(store *genericregistry.Store, update rest.RESTUpdateStrategy,
	reset rest.ResetFieldsStrategy) *genericregistry.Store {
	other := *store
	other.UpdateStrategy, other.ResetFieldsStrategy = update, reset
	return &other
}
