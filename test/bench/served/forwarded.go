package served

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	settings    = "/api/v1/namespaces/default/configmaps/settings-00000"
)

// forwardedRequest is a small request that a proxy forwards.
type forwardedRequest struct {
	row, method, path, contentType string
	body                           func(i int) []byte
}

// forwardedRequests are a read of what is not cached, a read that the server answers as fast, and a write.
var forwardedRequests = []forwardedRequest{
	{"forwarded: GET of a Secret", http.MethodGet, secretsPath + "/small", "", func(int) []byte { return nil }},
	{"forwarded: consistent LIST of namespaces", http.MethodGet, "/api/v1/namespaces", "", func(int) []byte {
		return nil
	}},
	{"forwarded: PATCH of a config map", http.MethodPatch, settings, string(types.MergePatchType), annotate},
}

// annotate is a patch that changes an object.
func annotate(i int) []byte { return fmt.Appendf(nil, `{"metadata":{"annotations":{"turn":"%d"}}}`, i) }

// measureForwarded measures how long a request takes that the proxy forwards: one at a time, at the server and through
// the proxy in turns.
func (p *Proxied) measureForwarded(ctx context.Context, r *Report, q forwardedRequest) error {
	if err := p.proxy.running(ctx); err != nil {
		return err
	}
	direct, err := p.direct.newAPIWriter()
	if err != nil {
		return err
	}
	defer direct.close()
	proxied, err := p.proxy.newAPIWriter()
	if err != nil {
		return err
	}
	defer proxied.close()
	secret := []byte(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"small"}}`)
	if err := direct.send(ctx, http.MethodPost, secretsPath, asJSON, secret, http.StatusCreated,
		http.StatusConflict); err != nil {
		return err
	}
	const warm = 10 // connections are open, and permissions are known
	var took [2][]time.Duration
	for i := range warm + p.scale.Forwarded {
		for turn := range took {
			at := (i + turn) % 2 // each is the first one half of the time
			began := time.Now()
			if err := [2]apiWriter{direct, proxied}[at].send(ctx, q.method, q.path, q.contentType, q.body(2*i+at),
				http.StatusOK); err != nil {
				return err
			}
			if i >= warm {
				took[at] = append(took[at], time.Since(began))
			}
		}
	}
	for at, by := range []Contender{p.direct.by, p.proxy.by} {
		slices.Sort(took[at])
		n := len(took[at])
		if n == 0 {
			return errors.New("no requests were measured")
		}
		r.Add(by, q.row, seconds(p50, took[at][n/2]), seconds(p99, took[at][n*99/100]))
	}
	return nil
}
