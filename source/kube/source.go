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
)

var _ keepwatch.Source = (*Source)(nil)

// Form says how the server shall show objects. The values are closed.
type Form uint8

const (
	// WholeObjects asks for the objects as they are.
	WholeObjects Form = iota
	// TableRows asks for what `kubectl get` prints: cells under columns, with each
	// object's metadata. A server that makes no tables answers with whole objects.
	TableRows
	// MetadataOnly asks for apiVersion, kind and metadata (PartialObjectMetadata).
	MetadataOnly
)

// Options say what to read. Resource is required, all else may be zero.
type Options struct {
	Resource  schema.GroupVersionResource
	Namespace string // "" for all namespaces, or for a cluster-scoped resource
	// LabelSelector and FieldSelector are the server's to understand; one that it
	// does not is Rejected.
	LabelSelector string
	FieldSelector string
	Form          Form
	// Decode, where it is set, makes what is handed on of each object; without it that
	// is an [*Object]. An error of it is a reason to withhold the object in a list; in
	// a watch the frame is Undecodable. It is called by one goroutine at a time, never
	// for table rows, and must not keep what Raw says is lent to it.
	Decode func(Raw) (keepwatch.Object, error)
	// Protobuf asks for protobuf, which servers have for built-in kinds and for
	// metadata, and for JSON where they don't. It needs Decode, who has to take both.
	Protobuf bool
	// DropManagedFields leaves metadata.managedFields out of all objects.
	DropManagedFields bool
	// PageSize is how many objects a page of a list may have; 0 means 500, as
	// kubectl asks for, negative means all in one page.
	PageSize int64
	// IdleTimeout bounds each silent stretch of a connection, waiting for the
	// answer included; 0 means DefaultIdleTimeout.
	IdleTimeout time.Duration
	// MaxObject bounds one object and one watch frame, in bytes as they come; 0 means
	// DefaultMaxObject. A longer frame is Undecodable, a longer object of a list
	// withheld.
	MaxObject int64
}

const (
	// DefaultIdleTimeout is two periods of the server's bookmarks and a little: a
	// server that sends them about once a minute and was silent for two of them is
	// not there any more.
	DefaultIdleTimeout = 2*time.Minute + 10*time.Second

	// DefaultMaxObject is twenty times what etcd takes in one request by default
	// (1.5 MiB, of protobuf for built-in kinds; JSON is longer), and still little
	// enough to hold.
	DefaultMaxObject = 32 << 20

	defaultPageSize = 500

	// endTimeout is how long a streaming list that has been accepted may stay
	// silent. A server waits 3 s at most for its cache to be fresh; one that says
	// nothing for this long has sent its state and does not know how to end it.
	endTimeout = 10 * time.Second
)

// Source reads one resource, perhaps within a namespace and under selectors.
// It keeps no connection of its own: that is client-go's transport, shared with
// every client of the same configuration.
type Source struct {
	client *http.Client
	target url.URL // of the resource, without a query
	base   url.Values
	name   string // "pods", "deployments.apps": for people

	form        Form
	protobuf    bool
	maker       maker // of objects, as each request begins with it
	pageSize    int64
	maxObject   int64
	idleTimeout time.Duration
	endTimeout  time.Duration
	listTimeout time.Duration

	brokenOff int // streaming lists in a row that were accepted and did not end

	// columns are the last that the server sent: it sends them with every page, but
	// in a watch only with the first event.
	columns atomic.Pointer[[]metav1.TableColumnDefinition]
}

// New makes a source. It sends nothing yet and does not change cfg.
//
// Of cfg, everything that concerns the connection and the credentials counts;
// Timeout bounds one page of a list and never a watch. UserAgent is
// "keepwatch/<version>" unless set. Rate limits (QPS, Burst, RateLimiter) and
// what concerns encodings (ContentConfig) have no meaning here.
func New(cfg *rest.Config, opts Options) (*Source, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent()
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connection settings: %w", err)
	}
	target, err := resourceURL(cfg, opts.Resource, opts.Namespace)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	s := &Source{
		client:      &http.Client{Transport: transport},
		target:      *target,
		base:        opts.query(),
		name:        opts.Resource.GroupResource().String(),
		form:        opts.Form,
		protobuf:    opts.Protobuf,
		maker:       maker{decode: opts.Decode, dropManaged: opts.DropManagedFields},
		pageSize:    opts.PageSize,
		maxObject:   opts.MaxObject,
		idleTimeout: opts.IdleTimeout,
		endTimeout:  endTimeout,
		listTimeout: cfg.Timeout,
	}
	if s.pageSize == 0 {
		s.pageSize = defaultPageSize
	}
	if s.idleTimeout == 0 {
		s.idleTimeout = DefaultIdleTimeout
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
	case o.Form > MetadataOnly:
		return fmt.Errorf("unknown form %d", o.Form)
	case o.Decode != nil && o.Form == TableRows:
		return errors.New("table rows are not decoded")
	case o.Protobuf && o.Decode == nil:
		return errors.New("protobuf needs somebody to decode it")
	case o.IdleTimeout < 0:
		return fmt.Errorf("the idle timeout must not be negative: %v", o.IdleTimeout)
	case o.MaxObject < 0 || o.MaxObject > 1<<30:
		return fmt.Errorf("the longest object must be between 1 byte and 1 GiB: %d", o.MaxObject)
	}
	return nil
}

// query is what every request carries.
func (o Options) query() url.Values {
	q := url.Values{}
	if o.LabelSelector != "" {
		q.Set("labelSelector", o.LabelSelector)
	}
	if o.FieldSelector != "" {
		q.Set("fieldSelector", o.FieldSelector)
	}
	if o.Form == TableRows {
		q.Set("includeObject", string(metav1.IncludeMetadata))
	}
	return q
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
	u := host.JoinPath(path)
	if namespace != "" {
		u = u.JoinPath("namespaces", url.PathEscape(namespace))
	}
	return u.JoinPath(url.PathEscape(gvr.Resource)), nil
}
