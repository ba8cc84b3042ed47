package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// resourceFlags are the flags that select objects of a server.
type resourceFlags struct {
	config        *genericclioptions.ConfigFlags
	allNamespaces bool
	labelSelector string
	fieldSelector string
	chunkSize     int64
}

// newResourceFlags returns the flags with their defaults.
func newResourceFlags() resourceFlags {
	return resourceFlags{config: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWrapConfigFn(func(cfg *rest.Config) *rest.Config {
			cfg.UserAgent = clientName()
			return cfg
		})}
}

// clientName is the User-Agent of all requests.
func clientName() string { return "keepwatch/" + strings.Trim(currentVersion().Version, "()") }

func (o *resourceFlags) addTo(flags *pflag.FlagSet) {
	o.config.AddFlags(flags)
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false,
		"all namespaces, regardless of the context and --namespace")
	flags.StringVarP(&o.labelSelector, "selector", "l", "",
		"only objects with these labels, for example key1=value1,key2!=value2")
	flags.StringVar(&o.fieldSelector, "field-selector", "",
		"only objects with these fields, for example spec.nodeName=n1; the server supports a few fields of each type")
	flags.Int64Var(&o.chunkSize, "chunk-size", 500, "list in pages of this many objects; 0 requests all in one")
}

// pageSize returns --chunk-size in the form of kube.Options.
func (o *resourceFlags) pageSize() int64 {
	if o.chunkSize == 0 {
		return -1
	}
	return o.chunkSize
}

// typeAndName is the argument TYPE [NAME].
type typeAndName struct{ kind, name string }

// parseTypeAndName parses TYPE, TYPE NAME or TYPE/NAME.
func parseTypeAndName(args []string) (typeAndName, error) {
	if len(args) == 0 {
		return typeAndName{}, errors.New("give the type of the resource, for example pods")
	}
	var a typeAndName
	kind, name, slash := strings.Cut(args[0], "/")
	a.kind, a.name = kind, name
	switch {
	case len(args) == 2 && !slash && !strings.Contains(args[1], "/"):
		a.name = args[1]
	case len(args) > 1:
		return typeAndName{},
			fmt.Errorf("a stream has one resource type, and one object or all objects: give TYPE or TYPE NAME, not %q",
				strings.Join(args, " "))
	}
	if a.kind == "" || a.name == "" && (slash || len(args) == 2) || strings.Contains(a.name, "/") {
		return typeAndName{}, fmt.Errorf("give TYPE, TYPE NAME or TYPE/NAME, not %q", strings.Join(args, " "))
	}
	return a, nil
}

// selection are the selectors, in their canonical form.
type selection struct{ labels, fields string }

// check returns an error for invalid numbers.
func (o *resourceFlags) check() error {
	if o.chunkSize < 0 {
		return fmt.Errorf("--chunk-size must not be negative: %d", o.chunkSize)
	}
	if timeout, err := clientcmd.ParseTimeout(*o.config.Timeout); err != nil || timeout < 0 {
		return fmt.Errorf("--request-timeout must be a time like 30s or 2m, or a number of seconds, not %q",
			*o.config.Timeout)
	}
	return nil
}

// selection parses the selectors, and adds a field selector for the name.
func (o *resourceFlags) selection(name string) (selection, error) {
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

// resourceTarget is the selected objects of a resource, and their server.
type resourceTarget struct {
	config   *rest.Config
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	// namespace is empty for all namespaces, and for cluster-scoped resources.
	namespace  string
	namespaced bool
	pinned     bool // the arguments name the version
	// shown is what discovery says of the resource, nil if it does not show it.
	shown *metav1.APIResource
	selection
}

// name returns the name of the resource in events and messages.
func (t *resourceTarget) name() string { return t.resource.GroupResource().String() }

// repeat sends a request until it succeeds or is given up.
type repeat func(ctx context.Context, request func(context.Context) error) error

// resolve finds the resource of the arguments on the server. The server must support the verbs for it.
func (o *resourceFlags) resolve(ctx context.Context, repeat repeat, arg typeAndName, selection selection,
	verbs ...string) (*resourceTarget, error) {
	config, err := connection(o.config)
	if err != nil {
		return nil, err
	}
	mapper, err := o.config.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	types, err := o.config.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	var mapping *meta.RESTMapping
	var shown *metav1.APIResource
	err = repeat(ctx, func(ctx context.Context) (err error) {
		mapping, err = mappingOf(ctx, meta.ToRESTMapperWithContext(mapper), arg.kind)
		if errors.As(err, new(unknownType)) {
			if err := checkReady(ctx, types.RESTClient()); err != nil {
				return err
			}
			meta.MaybeResetRESTMapper(mapper) // the server may have become ready between the two requests
			mapping, err = mappingOf(ctx, meta.ToRESTMapperWithContext(mapper), arg.kind)
		}
		if err != nil {
			err = checkGroup(ctx, types.RESTClient(), arg.kind, err)
		} else {
			shown, err = checkVerbs(ctx, discovery.ToDiscoveryInterfaceWithContext(types), mapping.Resource, verbs)
		}
		if err != nil && !startup.Final(err) {
			err = fmt.Errorf("can't read the resource types of the server: %w", startup.WithoutAddress(err))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t := &resourceTarget{
		config: config, resource: mapping.Resource, kind: mapping.GroupVersionKind,
		namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace, selection: selection, shown: shown,
	}
	if versioned, _ := schema.ParseResourceArg(arg.kind); versioned != nil {
		t.pinned = versioned.GroupVersion() == mapping.Resource.GroupVersion()
	}
	switch {
	case !t.namespaced:
	case o.allNamespaces && arg.name != "":
		return nil, &exitError{codeUsage, errors.New("a name can't be combined with all namespaces: remove the name or -A")}
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
	versioned, resource := schema.ParseResourceArg(text)
	if versioned != nil {
		kind, err := mapper.KindForWithContext(ctx, *versioned)
		if err == nil {
			return mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		} else if !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	kind, err := mapper.KindForWithContext(ctx, resource.WithVersion(""))
	switch {
	case meta.IsNoMatchError(err) && resource.Group != "":
		return nil, startup.Refused(unknownType{fmt.Errorf("the server doesn't have a resource type %q in group %q",
			resource.Resource, resource.Group)})
	case meta.IsNoMatchError(err):
		return nil, startup.Refused(unknownType{fmt.Errorf("the server doesn't have a resource type %q", resource.Resource)})
	case meta.IsAmbiguousError(err):
		return nil, startup.Refused(err)
	case err != nil:
		return nil, err
	}
	return mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
}

// unknownType is the error of a type that the server does not have.
type unknownType struct{ error }

// checkGroup returns a better error for an unknown type if the server does not show all types of the group that is
// named: the server of an aggregated API may be down. The request is then repeated.
func checkGroup(ctx context.Context, client rest.Interface, kind string, unknown error) error {
	if !errors.As(unknown, new(unknownType)) {
		return unknown
	}
	versioned, resource := schema.ParseResourceArg(kind)
	groups := []string{resource.Group}
	if versioned != nil {
		groups = append(groups, versioned.Group)
	}
	for _, group := range groups {
		if group == "" {
			continue
		}
		if _, err := apitypes.Of(ctx, client, group); err != nil {
			return apierrors.NewServiceUnavailable(err.Error())
		}
	}
	return unknown
}

// checkReady returns an error while the server starts: until then it lacks the types of CustomResourceDefinitions. A
// server that does not say whether it is ready counts as such.
func checkReady(ctx context.Context, client rest.Interface) error {
	var code int
	err := client.Get().AbsPath("/readyz").Do(ctx).StatusCode(&code).Error()
	switch {
	case err == nil:
		return nil
	case code == http.StatusInternalServerError: // the answer lists the checks
		return apierrors.NewServiceUnavailable("the server is not ready: it may lack types")
	case code == 0 || code == http.StatusTooManyRequests || code > http.StatusInternalServerError:
		return fmt.Errorf("can't read whether the server is ready: %w", startup.WithoutAddress(err))
	}
	return nil
}

// checkVerbs returns what discovery says of a resource, and an error if the server does not support the verbs for it.
func checkVerbs(ctx context.Context, types discovery.DiscoveryInterfaceWithContext,
	resource schema.GroupVersionResource,
	verbs []string) (*metav1.APIResource, error) {
	found, err := types.ServerResourcesForGroupVersionWithContext(ctx, resource.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	for _, r := range found.APIResources {
		lacks := func(verb string) bool { return !slices.Contains(r.Verbs, verb) }
		switch {
		case r.Name != resource.Resource:
		case slices.ContainsFunc(verbs, lacks):
			return nil, startup.Refused(fmt.Errorf("the server doesn't support %s for %s, only %s",
				strings.Join(verbs, " and "), resource.GroupResource(), strings.Join(r.Verbs, ", ")))
		default:
			return &r, nil
		}
	}
	return nil, nil
}

// scope names the objects of a target for people.
func (t *resourceTarget) scope() string {
	if t.namespace == "" {
		return t.name()
	}
	return t.name() + " in " + t.namespace
}

func (t *resourceTarget) isSecret() bool {
	return t.resource.Group == "" && t.resource.Resource == "secrets"
}

// identityTimeout bounds one request for the identity of the cluster.
const identityTimeout = 10 * time.Second

// identity returns the identity of the stream in a state on disk.
func (t *resourceTarget) identity(ctx context.Context, repeat repeat) (stream.Identity, error) {
	cluster, err := clusterOf(ctx, t.config, repeat)
	return stream.Identity{
		Cluster: cluster, Resource: t.name(), Namespace: t.namespace,
		LabelSelector: t.labels, FieldSelector: t.fields,
	}, err
}

// clusterOf identifies the cluster of a server by the UID of its namespace kube-system, or by its address
// if that namespace cannot be read or does not exist.
func clusterOf(ctx context.Context, config *rest.Config, repeat repeat) (stream.Cluster, error) {
	cluster := stream.Cluster{Server: config.Host}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return stream.Cluster{}, err
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	err = repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, identityTimeout)
		defer cancel()
		o, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		switch {
		case err == nil:
			cluster.UID = string(o.UID)
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			return fmt.Errorf("can't read the identity of the cluster from its namespace kube-system: %w",
				startup.WithoutAddress(err))
		}
		return nil
	})
	return cluster, err
}
