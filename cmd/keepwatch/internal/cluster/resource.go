package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/internal/startup"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// Flags are the flags that select objects of a server.
type Flags struct {
	Config        *genericclioptions.ConfigFlags
	AllNamespaces bool
	LabelSelector string
	FieldSelector string
	chunkSize     int64
}

// NewFlags returns the flags with their defaults.
func NewFlags() Flags {
	return Flags{Config: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
		WithWrapConfigFn(func(cfg *rest.Config) *rest.Config {
			cfg.UserAgent = ClientName()
			return cfg
		})}
}

func (o *Flags) AddTo(flags *pflag.FlagSet) {
	o.Config.AddFlags(flags)
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false,
		"all namespaces, regardless of the context and --namespace")
	flags.StringVarP(&o.LabelSelector, "selector", "l", "",
		"only objects with these labels, for example key1=value1,key2!=value2")
	flags.StringVar(&o.FieldSelector, "field-selector", "",
		"only objects with these fields, for example spec.nodeName=n1; the server supports a few fields of each type")
	flags.Int64Var(&o.chunkSize, "chunk-size", 500, "list in pages of this many objects; 0 requests all in one")
}

// PageSize returns --chunk-size in the form of kube.Options.
func (o *Flags) PageSize() int64 {
	if o.chunkSize == 0 {
		return -1
	}
	return o.chunkSize
}

// TypeAndName is the argument TYPE [NAME].
type TypeAndName struct{ Kind, Name string }

// ParseTypeAndName parses TYPE, TYPE NAME or TYPE/NAME.
func ParseTypeAndName(args []string) (TypeAndName, error) {
	if len(args) == 0 {
		return TypeAndName{}, errors.New("give the type of the resource, for example pods")
	}
	var a TypeAndName
	kind, name, slash := strings.Cut(args[0], "/")
	a.Kind, a.Name = kind, name
	switch {
	case len(args) == 2 && !slash && !strings.Contains(args[1], "/"):
		a.Name = args[1]
	case len(args) > 1:
		return TypeAndName{},
			fmt.Errorf("a stream has one resource type, and one object or all objects: give TYPE or TYPE NAME, not %q",
				strings.Join(args, " "))
	}
	if a.Kind == "" || a.Name == "" && (slash || len(args) == 2) || strings.Contains(a.Name, "/") {
		return TypeAndName{}, fmt.Errorf("give TYPE, TYPE NAME or TYPE/NAME, not %q", strings.Join(args, " "))
	}
	return a, nil
}

// Selection are the selectors, in their canonical form.
type Selection struct{ Labels, Fields string }

// Check returns an error for invalid numbers.
func (o *Flags) Check() error {
	if o.chunkSize < 0 {
		return fmt.Errorf("--chunk-size must not be negative: %d", o.chunkSize)
	}
	if timeout, err := clientcmd.ParseTimeout(*o.Config.Timeout); err != nil || timeout < 0 {
		return fmt.Errorf("--request-timeout must be a time like 30s or 2m, or a number of seconds, not %q",
			*o.Config.Timeout)
	}
	return nil
}

// Selection parses the selectors, and adds a field selector for the name.
func (o *Flags) Selection(name string) (Selection, error) {
	if name != "" && o.LabelSelector != "" {
		return Selection{}, errors.New("a name and --selector can't be combined")
	}
	byLabel, err := labels.Parse(o.LabelSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("--selector %q: %w", o.LabelSelector, err)
	}
	byField, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return Selection{}, fmt.Errorf("--field-selector %q: %w", o.FieldSelector, err)
	}
	if name != "" {
		byField = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, name), byField)
	}
	return Selection{Labels: byLabel.String(), Fields: byField.String()}, nil
}

// Target is the selected objects of a resource, and their server.
type Target struct {
	Config   *rest.Config
	Resource schema.GroupVersionResource
	Kind     schema.GroupVersionKind
	// namespace is empty for all namespaces, and for cluster-scoped resources.
	Namespace  string
	Namespaced bool
	Pinned     bool // the arguments name the version
	// shown is what discovery says of the resource, nil if it does not show it.
	Shown *metav1.APIResource
	Selection
}

// Name returns the name of the resource in events and messages.
func (t *Target) Name() string { return t.Resource.GroupResource().String() }

// Repeat sends a request until it succeeds or is given up.
type Repeat func(ctx context.Context, request func(context.Context) error) error

// Resolve finds the resource of the arguments on the server. The server must support the verbs for it.
func (o *Flags) Resolve(ctx context.Context, repeat Repeat, arg TypeAndName, selection Selection,
	verbs ...string) (*Target, error) {
	config, err := Connection(o.Config)
	if err != nil {
		return nil, err
	}
	mapper, err := o.Config.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	types, err := o.Config.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	var mapping *meta.RESTMapping
	var shown *metav1.APIResource
	err = repeat(ctx, func(ctx context.Context) (err error) {
		mapping, err = mappingOf(ctx, meta.ToRESTMapperWithContext(mapper), arg.Kind)
		if errors.As(err, new(unknownType)) {
			if err := checkReady(ctx, types.RESTClient()); err != nil {
				return err
			}
			meta.MaybeResetRESTMapper(mapper) // the server may have become ready between the two requests
			mapping, err = mappingOf(ctx, meta.ToRESTMapperWithContext(mapper), arg.Kind)
		}
		if err != nil {
			err = checkGroup(ctx, types.RESTClient(), arg.Kind, err)
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
	t := &Target{
		Config: config, Resource: mapping.Resource, Kind: mapping.GroupVersionKind,
		Namespaced: mapping.Scope.Name() == meta.RESTScopeNameNamespace, Selection: selection, Shown: shown,
	}
	if versioned, _ := schema.ParseResourceArg(arg.Kind); versioned != nil {
		t.Pinned = versioned.GroupVersion() == mapping.Resource.GroupVersion()
	}
	switch {
	case !t.Namespaced:
	case o.AllNamespaces && arg.Name != "":
		return nil, exit.Usage(errors.New("a name can't be combined with all namespaces: remove the name or -A"))
	case !o.AllNamespaces:
		if t.Namespace, _, err = o.Config.ToRawKubeConfigLoader().Namespace(); err != nil {
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

// Scope names the objects of a target for people.
func (t *Target) Scope() string {
	if t.Namespace == "" {
		return t.Name()
	}
	return t.Name() + " in " + t.Namespace
}

func (t *Target) IsSecret() bool {
	return t.Resource.Group == "" && t.Resource.Resource == "secrets"
}
