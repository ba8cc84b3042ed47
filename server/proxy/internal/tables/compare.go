package tables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/keepwatch/keepwatch/server/customcolumns"
	"github.com/keepwatch/keepwatch/server/proxy/internal/discovery"
	"github.com/keepwatch/keepwatch/server/proxy/internal/verbatim"
	"github.com/keepwatch/keepwatch/server/readpath"
)

const (
	Media = "application/json;as=Table;v=v1;g=meta.k8s.io"
	// comparedPage is how many rows a page has that is compared, and maxComparedPage how many bytes.
	comparedPage, maxComparedPage = 500, 64 << 20
	// maxVersion is how many bytes the server's version may have.
	maxVersion = 1 << 20
	// clockSkew is how much the server's clock may differ from the proxy's: ages are by the clock of who prints them.
	clockSkew = 2 * time.Second
)

// errNoTable is why memory never answers the Tables of a resource. It is wrapped with the reason.
var errNoTable = errors.New("memory has no Tables of it")

// differentTable is the error of a Table that the server prints in another way.
type differentTable struct{ error }

func (d differentTable) Unwrap() error { return d.error }

func isDifferent(err error) bool {
	_, is := errors.AsType[differentTable](err)
	return is
}

// prove compares all rows of a resource with the server's. It returns the basis for which it has, or could not.
func (t *Proofs) prove(ctx context.Context, o *Objects) (*Proven, basis, error) {
	version, err := t.readVersion(ctx)
	on := basis{server: version}
	if err != nil {
		return nil, on, err
	}
	table, identity, err := t.tableOf(ctx, o)
	on.definition = identity
	if err != nil {
		return nil, on, err
	}
	described := o.Described
	described.Table = table
	reader, err := readpath.NewReader(described, t.budget)
	if err != nil {
		return nil, on, err
	}
	if err := t.compare(ctx, o, reader, everything); err != nil {
		return nil, on, err
	}
	if now, known := t.basisOf(o); !known || now != on {
		return nil, on, errors.New("the definition or the server has changed meanwhile")
	}
	p := &Proven{basis: on, Reader: reader}
	p.compared.Store(time.Now().UnixNano())
	return p, on, nil
}

// readVersion asks for the version of the server, and records it.
func (t *Proofs) readVersion(ctx context.Context) (string, error) {
	body, _, err := t.server.Get(ctx, "/version", nil, runtime.ContentTypeJSON, maxVersion)
	if err != nil {
		return "", err
	}
	var read struct{ GitVersion, GitCommit, BuildDate string }
	if err := json.Unmarshal(body, &read); err != nil {
		return "", err
	}
	version := read.GitVersion + " " + read.GitCommit + " " + read.BuildDate
	t.version.Store(&version)
	return version, nil
}

// tableOf returns how memory prints the Tables of a resource, and the identity of its definition.
func (t *Proofs) tableOf(ctx context.Context, o *Objects) (_ *readpath.Table, identity string, _ error) {
	if !o.Format.Dynamic {
		return nil, "", fmt.Errorf("%w: its columns are in the server's program", errNoTable)
	}
	d, err := t.definitions.await(ctx, o.Described.Resource.GroupResource())
	if err != nil {
		return nil, "", err
	}
	columns, ok := d.columns[o.Described.Resource.Version]
	if !ok {
		return nil, d.identity, fmt.Errorf("%w: its definition has no such version, or objects that may be lists", errNoTable)
	}
	table, err := customTable(columns)
	return table, d.identity, err
}

// customTable returns the Table of a custom resource with columns.
func customTable(columns []apiextensionsv1.CustomResourceColumnDefinition) (*readpath.Table, error) {
	printed, err := customcolumns.NewTable(columns)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoTable, err)
	}
	return &readpath.Table{Columns: printed.Columns, Row: func(o runtime.Object) (metav1.TableRow, error) {
		custom := &unstructured.Unstructured{}
		if err := verbatim.DecodeJSON(o, &custom.Object); err != nil {
			return metav1.TableRow{}, err
		}
		return printed.Row(custom)
	}}, nil
}

// part is which rows are compared: those of a namespace if it is not empty, and all pages or the first.
type part struct {
	namespace string
	all       bool
}

var everything = part{all: true}

// sampleOf returns a random part of a resource: the namespace of an object.
func sampleOf(o *Objects) part {
	if !o.Format.Namespaced {
		return part{}
	}
	state := o.Reader.Cache().Snapshot()
	if state.Len() == 0 {
		return part{}
	}
	at := rand.N(state.Len())
	for segment := range state.Segments() {
		if at < segment.Len() {
			for o := range segment.All() {
				return part{namespace: o.Key().Namespace}
			}
		}
		at -= segment.Len()
	}
	return part{}
}

// compare compares a part of a Table at the cache's revision with the server's.
func (t *Proofs) compare(ctx context.Context, o *Objects, reader *readpath.Reader, of part) error {
	select {
	case t.comparing <- struct{}{}:
		defer func() { <-t.comparing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	path := discovery.PathOf(o.Described.Resource.GroupVersion())
	if of.namespace != "" {
		path += "/namespaces/" + of.namespace
	}
	path += "/" + o.Described.Resource.Resource
	query := url.Values{
		"resourceVersion":      {o.Reader.Cache().Revision().String()},
		"resourceVersionMatch": {string(metav1.ResourceVersionMatchExact)},
		"limit":                {strconv.Itoa(comparedPage)},
	}
	for {
		if o.Format.Slim { // the server has managedFields in the metadata
			query.Set("includeObject", string(metav1.IncludeNone))
		}
		next, err := t.comparePage(ctx, reader, path, query)
		if err != nil || next == "" || !of.all {
			return err
		}
		query = url.Values{"limit": {strconv.Itoa(comparedPage)}, "continue": {next}}
	}
}

// comparePage compares a page, and returns the token of the next one.
func (t *Proofs) comparePage(ctx context.Context, reader *readpath.Reader, path string,
	query url.Values) (next string, _ error) {
	earliest := time.Now().Add(-clockSkew)
	body, _, err := t.server.Get(ctx, path, query, Media, maxComparedPage)
	if err != nil {
		return "", err
	}
	latest := time.Now().Add(clockSkew)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, path+"?"+query.Encode(), nil)
	if err != nil {
		return "", err
	}
	q.Header.Set("Accept", Media)
	info, err := t.infos.NewRequestInfo(q)
	if err != nil {
		return "", err
	}
	if _, err := reader.CompareTable(q, info, body, earliest, latest); errors.Is(err, readpath.ErrIncomparable) {
		return "", err
	} else if err != nil {
		return "", differentTable{err}
	}
	var page struct{ Metadata metav1.ListMeta }
	err = json.Unmarshal(body, &page)
	return page.Metadata.Continue, err
}
