package conform_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/judgetest"
	"github.com/keepwatch/keepwatch/server/judge/conform"
)

// However long a server takes to delete one object, the namespace and the definition are deleted, and it deletes their
// objects with them.
func TestSlowDeletionsLeaveNothing(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	p := judgetest.Proxy{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
		_, object, _ := strings.Cut(r.URL.Path, "/namespaces/")
		if r.Method != http.MethodDelete || ctx.Err() == nil || !strings.Contains(object, "/") {
			return false
		}
		<-r.Context().Done() // of an object in the namespace: longer than the run waits
		return true
	}}
	o := small
	o.Progress = func(line string) {
		if strings.HasPrefix(line, "list.any:") {
			interrupt()
		}
		if strings.HasPrefix(line, "not deleted") {
			t.Error(line)
		}
	}
	if _, err := conform.Run(ctx, p.Serve(t, api), o); err == nil {
		t.Error("the run was not interrupted")
	}
	leavesNothing(t, ofAnyRun)
}

// hanging is a connection whose requests do not end with their contexts, as those that wait for a credential plugin.
type hanging chan struct{}

func (h hanging) RoundTrip(*http.Request) (*http.Response, error) {
	<-h
	return nil, errors.New("released")
}

// A run that is interrupted while a request hangs ends, and says how to delete what it may have left.
func TestHangingRequest(t *testing.T) {
	for namespace, want := range map[string]string{
		"":     "kubectl delete customresourcedefinitions,namespaces -l conform.keepwatch.io/run=conform-",
		"mine": "kubectl delete customresourcedefinitions,configmaps -n mine -l conform.keepwatch.io/run=conform-",
	} {
		synctest.Test(t, func(t *testing.T) {
			released := make(hanging)
			defer close(released)
			asked := errors.New("asked to end")
			ctx, interrupt := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { interrupt(asked) })
			var said []string
			o := conform.Options{Namespace: namespace, Progress: func(line string) { said = append(said, line) }}
			begin := time.Now()
			_, err := conform.Run(ctx, &rest.Config{Host: "http://server", Transport: released}, o)
			if after := time.Since(begin) - time.Minute; !errors.Is(err, asked) || after != 35*time.Second {
				t.Errorf("%v after %v", err, after)
			}
			if len(said) != 1 || !strings.Contains(said[0], want) {
				t.Errorf("the progress is %q, without %q", said, want)
			}
		})
	}
}

// A run that is interrupted while its first objects are created deletes them.
func TestLostCreationsLeaveNothing(t *testing.T) {
	for _, created := range []string{"/customresourcedefinitions", "/api/v1/namespaces"} {
		ctx, interrupt := context.WithCancel(t.Context())
		p := judgetest.Proxy{Intercept: func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, created) {
				return false
			}
			forward(t, r)
			interrupt() // its answer does not arrive
			<-r.Context().Done()
			return true
		}}
		if _, err := conform.Run(ctx, p.Serve(t, api), conform.Only(small, "list.newest")); err == nil {
			t.Error("the run was not interrupted")
		}
	}
	leavesNothing(t, ofAnyRun)
}

// forward sends a request to the server and returns the code of its answer.
func forward(t *testing.T, r *http.Request) int {
	transport, err := rest.TransportFor(api)
	if err != nil {
		t.Error(err)
		return 0
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
		return 0
	}
	again, err := http.NewRequestWithContext(t.Context(), r.Method, api.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	again.Header = r.Header.Clone()
	response, err := transport.RoundTrip(again)
	if err != nil {
		t.Error(err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// Each object of a run has its label, by which people find what a killed run has left.
func TestObjectsAreLabelled(t *testing.T) {
	t.Parallel()
	client, namespace := newNamespace(t, api)
	var mu sync.Mutex
	unlabelled := map[string]bool{}
	p := judgetest.Proxy{Answer: func(r *http.Request, body []byte) []byte {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/namespaces/"+namespace+"/") &&
			!bytes.Contains(body, []byte(`"conform.keepwatch.io/run":"conform-`)) {
			mu.Lock()
			defer mu.Unlock()
			unlabelled[string(body)] = true
		}
		return body
	}}
	o := conform.Only(small, "list.selector", "storm")
	o.Namespace = namespace
	report, err := conform.Run(t.Context(), p.Serve(t, api), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Broken())+len(unlabelled) > 0 {
		t.Errorf("%v, without the label: %d", report.Broken(), len(unlabelled))
	}
	left, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.Items) > 0 {
		t.Errorf("%d objects are left", len(left.Items))
	}
}
