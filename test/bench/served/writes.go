package served

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/load"
)

// The measures of writes.
const (
	perSecond = "writes per second"
	perWrite  = "server CPU per write"
	writeP99  = "p99 of a write"
)

// writerCounts are how many writers write at a time.
var writerCounts = []int{1, 16, 64}

// writeKind is a kind of write, of the pod of a number.
type writeKind struct {
	name        string
	method      string
	contentType string
	// path is the collection's or the object's.
	path func(name string) string
	body func(i int) ([]byte, error)
}

const (
	writeNamespace = "written"
	podsPath       = "/api/v1/namespaces/" + writeNamespace + "/pods"
)

// writeKinds are in an order that begins and ends without pods.
var writeKinds = []writeKind{
	{"create", http.MethodPost, asJSON,
		func(string) string { return podsPath },
		func(i int) ([]byte, error) { return json.Marshal(writtenPod(i, "created")) }},
	{"update", http.MethodPut, asJSON,
		func(name string) string { return podsPath + "/" + name },
		func(i int) ([]byte, error) { return json.Marshal(writtenPod(i, "updated")) }},
	{"patch", http.MethodPatch, string(types.StrategicMergePatchType),
		func(name string) string { return podsPath + "/" + name },
		func(int) ([]byte, error) { return []byte(`{"metadata":{"annotations":{"state":"patched"}}}`), nil }},
	{"delete", http.MethodDelete, asJSON,
		func(name string) string { return podsPath + "/" + name + "?gracePeriodSeconds=0" },
		func(int) ([]byte, error) { return nil, nil }},
}

func (k writeKind) row(writers int) string {
	if writers == 1 {
		return k.name + ", 1 writer"
	}
	return fmt.Sprintf("%s, %d writers", k.name, writers)
}

// writeStep names the step of all kinds.
func writeStep(writers int) string {
	return fmt.Sprintf("create, update, patch, delete, %d writers", writers)
}

func writtenPod(i int, state string) *corev1.Pod {
	pod := load.Pod(writeNamespace, i)
	pod.Annotations["state"] = state
	return pod
}

// measureWrites creates, updates, patches and deletes n pods, in turns.
func (s *Server) measureWrites(ctx context.Context, r *Report, writers, n int) error {
	w, err := s.newAPIWriter()
	if err != nil {
		return err
	}
	defer w.close()
	namespace, err := json.Marshal(corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: writeNamespace}})
	if err != nil {
		return err
	}
	err = w.send(ctx, http.MethodPost, "/api/v1/namespaces", asJSON, namespace, http.StatusCreated, http.StatusConflict)
	if err != nil {
		return err
	}
	totals := make([]usage, len(writeKinds))
	tooks := make([][]time.Duration, len(writeKinds))
	for first := 0; first < n; first += writeTurn {
		for k, kind := range writeKinds {
			u, took, err := s.measureTurn(ctx, w, kind, writers, first, min(writeTurn, n-first))
			if err != nil {
				return err
			}
			totals[k].wall += u.wall
			totals[k].cpu += u.cpu
			tooks[k] = append(tooks[k], took...)
		}
	}
	for k, kind := range writeKinds {
		slices.Sort(tooks[k])
		r.Add(s.by, kind.row(writers),
			Figure{perSecond, figures.Count, math.Round(float64(n) / totals[k].wall.Seconds())},
			seconds(writeP99, tooks[k][n*99/100]), seconds(perWrite, totals[k].cpu/time.Duration(n)))
	}
	return nil
}

// writeTurn is how many pods are created before they are updated, and so on. The kinds take turns because a
// collection of garbage costs as much as a thousand writes: in one long turn of each kind, one has it
// and the next has none.
const writeTurn = 100

// measureTurn measures writes of one kind to n pods, from pod number first on.
func (s *Server) measureTurn(ctx context.Context, w apiWriter, kind writeKind, writers, first,
	n int) (u usage, took []time.Duration, err error) {
	bodies := make([][]byte, n)
	for i := range bodies {
		if bodies[i], err = kind.body(first + i); err != nil {
			return u, nil, err
		}
	}
	u, err = measure(s.process(), func() (err error) {
		took, err = w.write(ctx, kind, writers, first, bodies)
		return err
	})
	return u, took, err
}

// apiWriter sends requests to the API, by one connection.
type apiWriter struct {
	client *http.Client
	host   string
}

// newAPIWriter returns a writer, which the caller closes.
func (s *Server) newAPIWriter() (apiWriter, error) {
	config := s.Config()
	client, err := rest.HTTPClientFor(config)
	return apiWriter{client, config.Host}, err
}

func (w apiWriter) close() { utilnet.CloseIdleConnectionsFor(w.client.Transport) }

// write sends the bodies of pods, from pod number first on, by a number of writers, each of which waits for its
// answers. It returns how long each write took.
func (w apiWriter) write(ctx context.Context, kind writeKind, writers, first int,
	bodies [][]byte) ([]time.Duration, error) {
	took := make([]time.Duration, len(bodies))
	group, ctx := errgroup.WithContext(ctx)
	for one := range min(writers, len(bodies)) {
		group.Go(func() error {
			for i := one; i < len(bodies); i += writers {
				path := kind.path(writtenName(first + i))
				began := time.Now()
				if err := w.send(ctx, kind.method, path, kind.contentType, bodies[i], http.StatusOK,
					http.StatusCreated); err != nil {
					return err
				}
				took[i] = time.Since(began)
			}
			return nil
		})
	}
	return took, group.Wait()
}

func writtenName(i int) string { return load.Pod(writeNamespace, i).Name }

// send expects one of the status codes.
func (w apiWriter) send(ctx context.Context, method, path, contentType string, body []byte, want ...int) error {
	request, err := http.NewRequestWithContext(ctx, method, w.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", asJSON)
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if !slices.Contains(want, response.StatusCode) {
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, text)
	}
	return nil
}
