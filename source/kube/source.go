package kube

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/internal/deletions"
	"github.com/keepwatch/keepwatch/internal/pings"
)

var _ keepwatch.Source = (*Source)(nil)

// Representation is the form of objects that the source requests. The values are closed.
type Representation uint8

const (
	// WholeObjects requests complete objects.
	WholeObjects Representation = iota
	// TableRows requests what `kubectl get` prints: cells under columns, with each object's
	// metadata. A server without tables answers with whole objects.
	TableRows
	// MetadataOnly requests apiVersion, kind and metadata (PartialObjectMetadata).
	MetadataOnly
)

// Options configure a Source. Resource is required; the other fields may be zero.
type Options struct {
	// Resource is the resource to read, by its plural name: "pods". Version is required.
	Resource schema.GroupVersionResource
	// Namespace restricts the source to one namespace. Empty means all namespaces, or a
	// cluster-scoped resource.
	Namespace string
	// LabelSelector and FieldSelector are evaluated by the server, which rejects invalid
	// ones (Rejected).
	LabelSelector string
	FieldSelector string
	// Representation is the form of the objects. Zero means WholeObjects.
	Representation Representation
	// Decode returns the object to be delivered. If it is nil, the source delivers each
	// [*Object]. After an error a list skips the object, and a watch fails with Undecodable.
	// Decode is called by one goroutine at a time, never for table rows. It must not retain
	// Raw.Body.
	Decode func(Raw) (keepwatch.Object, error)
	// Protobuf requests protobuf, which servers have for built-in kinds and metadata, with
	// JSON as alternative. It requires a Decode that accepts both encodings.
	Protobuf bool
	// DropManagedFields removes metadata.managedFields from all objects.
	DropManagedFields bool
	// PageSize bounds the objects of a list's page. Zero means 500, as in kubectl; a negative
	// value means one page.
	PageSize int64
	// IdleTimeout bounds each wait for data from the server, including that for the
	// response. Zero means DefaultIdleTimeout.
	IdleTimeout time.Duration
	// WatchTimeout returns how long the server keeps the next watch open, in whole seconds. If it is nil
	// or returns zero, that is 5 to 10 minutes, as with client-go.
	WatchTimeout func() time.Duration
	// BatchBytes bounds the objects of a watch's batch, and those that are read ahead of it, in bytes. Zero means
	// DefaultBatchBytes. One object may be longer, and so may the deletions of Events at one revision, up to 64 MiB.
	BatchBytes int
	// Definitions are those of the server, which the sources of a client may share: then each asks before its first list,
	// too. Nil: the source asks for itself.
	Definitions *Definitions
	// MaxObject bounds one object and one watch frame, in bytes as received. Zero means
	// DefaultMaxObject. A longer frame is Undecodable; a list skips a longer object.
	MaxObject int64
}

const (
	// DefaultIdleTimeout is the longest wait for data from the server: 130 seconds. It is
	// slightly longer than two periods of the server's bookmarks, which are about a minute.
	DefaultIdleTimeout = 2*time.Minute + 10*time.Second

	// DefaultMaxObject is the greatest size of one object or watch frame, in bytes: 32 MiB. It
	// is twenty times etcd's default limit of a request (1.5 MiB, in protobuf for built-in
	// kinds; JSON is longer), and fits in memory.
	DefaultMaxObject = 32 << 20

	// DefaultBatchBytes is the greatest size of a watch's batch: 1 MiB.
	DefaultBatchBytes = 1 << 20

	defaultPageSize = 500

	// listEndTimeout is the idle timeout of a streaming list that was accepted. A server
	// waits at most 3 s until its cache is fresh. One that sends nothing for listEndTimeout
	// has sent its state, and does not support the bookmark that ends it.
	listEndTimeout = 10 * time.Second
)

// Source reads one resource of a Kubernetes API, optionally in one namespace and with
// selectors. Its connections are those of client-go's transport, shared with every client
// of the same configuration.
type Source struct {
	client    *http.Client
	endpoint  url.URL // of the resource, without a query
	baseQuery url.Values
	name      string // "pods", "deployments.apps": for messages
	resource  schema.GroupVersionResource

	definitions *Definitions
	definition  definitionWatch

	representation Representation
	protobuf       bool
	builder        builder // initial, copied for each request
	pageSize       int64
	batchBytes     int
	maxObject      int64
	idleTimeout    time.Duration
	listEndTimeout time.Duration
	leaseOpen      time.Duration
	listTimeout    time.Duration
	watchTimeout   func() time.Duration

	versioned  atomic.Bool // an object with a revision was read
	bookmarked atomic.Bool // a bookmark was
	// cut is the revision at which a stream left out deletions that are not sent again, until a list; 0: none.
	cut atomic.Uint64

	// columns are the newest that the server sent: it sends them with each page, but in a
	// watch only with the first event.
	columns atomic.Pointer[[]metav1.TableColumnDefinition]
}

// New returns a source. It sends no request, and does not change cfg. It returns an error for
// invalid options, and for a cfg with an invalid address, certificate or other setting.
//
// The source uses cfg's connection and credentials. Timeout bounds one page of a list,
// and does not apply to watches. The default UserAgent is "keepwatch/<version>". The source
// ignores rate limits (QPS, Burst, RateLimiter) and encodings (ContentConfig).
func New(cfg *rest.Config, opts Options) (*Source, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(pings.Config(cfg))
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent()
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection settings: %w", err)
	}
	endpoint, err := resourceURL(cfg, opts.Resource, opts.Namespace)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	s := &Source{
		client:         &http.Client{Transport: transport},
		endpoint:       *endpoint,
		baseQuery:      opts.query(),
		name:           opts.Resource.GroupResource().String(),
		resource:       opts.Resource,
		definitions:    opts.Definitions,
		representation: opts.Representation,
		protobuf:       opts.Protobuf,
		builder:        builder{decode: opts.Decode, dropManaged: opts.DropManagedFields},
		pageSize:       opts.PageSize,
		batchBytes:     opts.BatchBytes,
		maxObject:      opts.MaxObject,
		idleTimeout:    opts.IdleTimeout,
		listEndTimeout: listEndTimeout,
		leaseOpen:      deletions.Open,
		listTimeout:    cfg.Timeout,
		watchTimeout:   opts.WatchTimeout,
	}
	s.definition.early = s.definitions != nil
	if s.definitions == nil {
		if s.definitions, err = NewDefinitions(cfg); err != nil {
			return nil, fmt.Errorf("connection settings: %w", err)
		}
	}
	if s.pageSize == 0 {
		s.pageSize = defaultPageSize
	}
	if s.idleTimeout == 0 {
		s.idleTimeout = DefaultIdleTimeout
	}
	if s.batchBytes == 0 {
		s.batchBytes = DefaultBatchBytes
	}
	if s.maxObject == 0 {
		s.maxObject = DefaultMaxObject
	}
	return s, nil
}

func (o Options) validate() error {
	switch {
	case o.Resource.Resource == "" || o.Resource.Version == "":
		return errors.New("a resource needs a name and a version")
	case o.Representation > MetadataOnly:
		return fmt.Errorf("unknown representation %d", o.Representation)
	case o.Decode != nil && o.Representation == TableRows:
		return errors.New("table rows are not decoded")
	case o.Protobuf && o.Decode == nil:
		return errors.New("protobuf requires Decode")
	case o.IdleTimeout < 0:
		return fmt.Errorf("the idle timeout must not be negative: %v", o.IdleTimeout)
	case o.MaxObject < 0 || o.MaxObject > 1<<30:
		return fmt.Errorf("the longest object must be between 1 byte and 1 GiB: %d", o.MaxObject)
	}
	return nil
}

// query returns the parameters of every request.
func (o Options) query() url.Values {
	q := url.Values{}
	if o.LabelSelector != "" {
		q.Set("labelSelector", o.LabelSelector)
	}
	if o.FieldSelector != "" {
		q.Set("fieldSelector", o.FieldSelector)
	}
	if o.Representation == TableRows {
		q.Set("includeObject", string(metav1.IncludeMetadata))
	}
	return q
}

// serverURL returns the address of the server.
func serverURL(cfg *rest.Config) (*url.URL, error) {
	host, _, err := rest.DefaultServerUrlFor(cfg)
	return host, err
}

func resourceURL(cfg *rest.Config, gvr schema.GroupVersionResource, namespace string) (*url.URL, error) {
	cfg.APIPath = "/apis"
	if gvr.Group == "" {
		cfg.APIPath = "/api"
	}
	gv := gvr.GroupVersion()
	cfg.GroupVersion = &gv
	host, path, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	resource := host.JoinPath(path)
	if namespace != "" {
		resource = resource.JoinPath("namespaces", url.PathEscape(namespace))
	}
	return resource.JoinPath(url.PathEscape(gvr.Resource)), nil
}
