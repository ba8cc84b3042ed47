package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/stream"
)

// typeAndName is TYPE [NAME] as given.
type typeAndName struct{ kind, name string }

// parseTypeAndName reads TYPE, TYPE NAME or TYPE/NAME.
func parseTypeAndName(args []string) (typeAndName, error) {
	if len(args) == 0 {
		return typeAndName{}, errors.New("give the type of the resource to watch, for example pods")
	}
	if strings.Contains(args[0], ",") {
		return typeAndName{}, fmt.Errorf("one stream is of one resource type: run keepwatch once for each of %s", args[0])
	}
	var a typeAndName
	kind, name, slash := strings.Cut(args[0], "/")
	a.kind, a.name = kind, name
	switch {
	case len(args) == 2 && !slash && !strings.Contains(args[1], "/"):
		a.name = args[1]
	case len(args) > 1:
		return typeAndName{}, fmt.Errorf("one stream is of one resource type, and of one object or all of them: give TYPE or TYPE NAME, not %q", strings.Join(args, " "))
	}
	if a.kind == "" || a.name == "" && (slash || len(args) == 2) || strings.Contains(a.name, "/") {
		return typeAndName{}, fmt.Errorf("give TYPE, TYPE NAME or TYPE/NAME, not %q", strings.Join(args, " "))
	}
	return a, nil
}

// selection are the selectors, in their canonical form.
type selection struct{ labels, fields string }

// selection checks the flags that select, and makes a field selector of a name.
func (o *watchOptions) selection(name string) (selection, error) {
	if o.chunkSize < 0 {
		return selection{}, fmt.Errorf("--chunk-size must not be negative: %d", o.chunkSize)
	}
	if name != "" && o.labelSelector != "" {
		return selection{}, errors.New("a name and --selector can't be combined")
	}
	byLabel, err := labels.Parse(o.labelSelector)
	if err != nil {
		return selection{}, fmt.Errorf("--selector %q: %w", o.labelSelector, err)
	}
	byField, err := fields.ParseSelector(o.fieldSelector)
	if err != nil {
		return selection{}, fmt.Errorf("--field-selector %q: %w", o.fieldSelector, err)
	}
	if name != "" {
		byField = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, name), byField)
	}
	return selection{labels: byLabel.String(), fields: byField.String()}, nil
}

// watchTarget is what is watched, and where.
type watchTarget struct {
	config   *rest.Config
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	// namespace is empty for all namespaces, and for cluster-scoped resources.
	namespace  string
	namespaced bool
	selection
}

// name is the resource as it is called in events, and for people.
func (t *watchTarget) name() string { return t.resource.GroupResource().String() }

// resolve asks the server what is meant.
func (o *watchOptions) resolve(ctx context.Context, arg typeAndName, selection selection) (*watchTarget, error) {
	config, err := o.config.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: give --kubeconfig, set KUBECONFIG, or write ~/.kube/config")
	} else if err != nil {
		return nil, err
	}
	mapper, err := o.config.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mappingOf(ctx, meta.ToRESTMapperWithContext(mapper), arg.kind)
	if err != nil {
		return nil, err
	}
	t := &watchTarget{
		config: config, resource: mapping.Resource, kind: mapping.GroupVersionKind,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace, selection: selection,
	}
	switch {
	case !t.namespaced:
	case o.allNamespaces && arg.name != "":
		return nil, &exitError{codeUsage, errors.New("an object can't be named in all namespaces: leave out the name or -A")}
	case !o.allNamespaces:
		if t.namespace, _, err = o.config.ToRawKubeConfigLoader().Namespace(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mappingOf resolves a type as kubectl does: pods, po, pod, Pod, deploy.apps,
// widgets.v1.example.com.
func mappingOf(ctx context.Context, mapper meta.RESTMapperWithContext, text string) (*meta.RESTMapping, error) {
	ctx = klog.NewContext(ctx, logr.Discard()) // what matters of discovery's troubles is in its error
	versioned, resource := schema.ParseResourceArg(text)
	if versioned != nil {
		if kind, err := mapper.KindForWithContext(ctx, *versioned); err == nil {
			return mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		}
	}
	kind, err := mapper.KindForWithContext(ctx, resource.WithVersion(""))
	switch {
	case meta.IsNoMatchError(err) && resource.Group != "":
		return nil, fmt.Errorf("the server doesn't have a resource type %q in group %q", resource.Resource, resource.Group)
	case meta.IsNoMatchError(err):
		return nil, fmt.Errorf("the server doesn't have a resource type %q", resource.Resource)
	case err != nil:
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err // without the address of one request of many
		}
		return nil, fmt.Errorf("can't read the resource types of the server: %w", err)
	}
	return mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
}

// identityTimeout bounds the wish to know which cluster it is.
const identityTimeout = 10 * time.Second

// identity is what a state on disk belongs to. A cluster is known by the UID of
// its namespace kube-system, and by its address where that can't be read.
func (t *watchTarget) identity(ctx context.Context) stream.Identity {
	id := stream.Identity{
		Cluster:  stream.Cluster{Server: t.config.Host},
		Resource: t.name(), Namespace: t.namespace,
		LabelSelector: t.labels, FieldSelector: t.fields,
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	client, err := metadata.NewForConfig(t.config)
	if err != nil {
		return id
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if o, err := client.Resource(namespaces).Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{}); err == nil {
		id.Cluster.UID = string(o.UID)
	}
	return id
}
