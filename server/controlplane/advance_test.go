package controlplane_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/server/controlplane"
)

const advancePath = "/keepwatch/simulation/advance"

// advance asks a server to advance the time of its simulation, and returns the time.
func advance(t *testing.T, config *rest.Config, by string) (time.Time, error) {
	t.Helper()
	result := connect(t, config).typed.CoreV1().RESTClient().Post().RequestURI(advancePath + "?by=" + by).Do(t.Context())
	if err := result.Error(); err != nil { // with the Status, unlike Raw's
		return time.Time{}, err
	}
	raw := must(result.Raw())(t)
	var answer struct{ Time metav1.MicroTime }
	if err := json.Unmarshal(raw, &answer); err != nil {
		return time.Time{}, err
	}
	return answer.Time.Time, nil
}

// startSimulation starts a server with RBAC and a simulation.
func startSimulation(t *testing.T) rbacServer {
	t.Helper()
	return startRBAC(t, controlplane.Options{Controllers: true, Simulation: controlplane.NewSimulation()})
}

// A client advances the time: a Job that runs for days completes.
func TestAdvanceByPath(t *testing.T) {
	t.Parallel()
	s := startSimulation(t)
	jobs := s.admin.typed.BatchV1().Jobs("default")
	must(jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "long"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{controlplane.RunForAnnotation: "48h"}},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}}}, metav1.CreateOptions{}))(t)
	var job *batchv1.Job
	await.State(t, "the Job runs", func() (bool, string) {
		job = must(jobs.Get(t.Context(), "long", metav1.GetOptions{}))(t)
		return job.Status.Ready != nil && *job.Status.Ready == 1, job.Status.String()
	})
	before := time.Now()
	now := must(advance(t, s.RESTConfig(), "48h"))(t)
	if now.Before(before.Add(48*time.Hour).Truncate(time.Microsecond)) || now.After(time.Now().Add(48*time.Hour)) {
		t.Errorf("advanced from %v to %v", before, now)
	}
	await.State(t, "the Job completes", func() (bool, string) {
		job = must(jobs.Get(t.Context(), "long", metav1.GetOptions{}))(t)
		return job.Status.CompletionTime != nil, job.Status.String()
	})
	if ran := job.Status.CompletionTime.Sub(job.Status.StartTime.Time); ran < 48*time.Hour {
		t.Errorf("the Job ran for %v", ran)
	}
}

// Requests that cannot be done get a Status that says what to do, and move nothing.
func TestRefusedAdvances(t *testing.T) {
	t.Parallel()
	s := startSimulation(t)
	const once = "give the duration by which to advance the time once"
	for _, c := range []struct {
		method, query string
		code          int
		message       string
	}{
		{"POST", "", 400, once},
		{"POST", "?by=1s&by=1s", 400, once},
		{"POST", "?by=1s;by=1s", 400, once},
		{"POST", "?By=1s", 400, once},
		{"POST", "?by=", 400, `by="" is not a duration`},
		{"POST", "?by=90", 400, `by="90" is not a duration of up to 292 years: give one like 90s or 1h30m`},
		{"POST", "?by=1d", 400, `by="1d" is not a duration`},
		{"POST", "?by=%2B", 400, `by="+" is not a duration`},
		{"POST", "?by=NaNs", 400, `by="NaNs" is not a duration`},
		{"POST", "?by=1e9h", 400, `by="1e9h" is not a duration`},
		{"POST", "?by=2562048h", 400, `by="2562048h" is not a duration`}, // overflows
		{"POST", "?by=9223372036854775808ns", 400, "is not a duration"},
		{"POST", "?by=" + strings.Repeat("9", 5000) + "h", 400, "is not a duration"},
		{"POST", "?by=%00%FF%0A", 400, `by="\x00\xff\n" is not a duration`},
		{"POST", "?by=-1ns", 400, "a simulation's time cannot be moved back"},
		{"POST", "?by=-9223372036854775808ns", 400, "a simulation's time cannot be moved back"},
		{"GET", "?by=1h", 405, "the time is advanced by POST " + advancePath + "?by=90s"},
		{"HEAD", "?by=1h", 405, ""},
		{"PUT", "?by=1h", 405, "by POST"},
		{"PATCH", "?by=1h", 405, "by POST"},
		{"DELETE", "?by=1h", 405, "by POST"},
	} {
		answer, status := send(t, s.RESTConfig(), c.method, advancePath+c.query)
		if answer.StatusCode != c.code || !strings.Contains(status.Message, c.message) {
			t.Errorf("%s %.60s: %d %q, want %d %q", c.method, c.query, answer.StatusCode, status.Message, c.code, c.message)
		}
		if c.method != "HEAD" && (status.Kind != "Status" || int(status.Code) != c.code || status.Reason == "") {
			t.Errorf("%s %.60s: the Status is %+v", c.method, c.query, status)
		}
		if allow := answer.Header.Get("Allow"); (c.code == 405) != (allow == "POST") {
			t.Errorf("%s %.60s: Allow is %q", c.method, c.query, allow)
		}
	}
	if now := must(advance(t, s.RESTConfig(), "0s"))(t); now.After(time.Now()) {
		t.Errorf("the simulation's time is %v", now)
	}
}

// send sends a request without a body, and returns the answer, and its Status if it has one.
func send(t *testing.T, config *rest.Config, method, path string) (*http.Response, metav1.Status) {
	t.Helper()
	q := must(http.NewRequestWithContext(t.Context(), method, config.Host+path, nil))(t)
	answer := must(must(rest.HTTPClientFor(config))(t).Do(q))(t)
	defer answer.Body.Close()
	var status metav1.Status
	if body := must(io.ReadAll(answer.Body))(t); len(body) > 0 {
		must(0, json.Unmarshal(body, &status))(t)
	}
	return answer, status
}

// A cluster at the end of its time refuses to go further, and still runs pods.
func TestAdvanceAsFarAsPossible(t *testing.T) {
	t.Parallel()
	s := startSimulation(t)
	end := must(advance(t, s.RESTConfig(), "2562047h"))(t)
	_, err := advance(t, s.RESTConfig(), "1h")
	if !apierrors.IsBadRequest(err) ||
		!strings.Contains(err.Error(), "at most 292 years ahead of real time, and it is 2562047h0m0s ahead") {
		t.Error(err)
	}
	pods := s.admin.typed.CoreV1().Pods("default")
	must(pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}, metav1.CreateOptions{}))(t)
	await.State(t, "the pod runs", func() (bool, string) {
		pod := must(pods.Get(t.Context(), "late", metav1.GetOptions{}))(t)
		started := pod.Status.StartTime
		return started != nil && !started.Time.Before(end.Truncate(time.Second)), pod.Status.String()
	})
}

// Concurrent advances add up.
func TestConcurrentAdvances(t *testing.T) {
	t.Parallel()
	s := startSimulation(t)
	const clients = 30
	before := time.Now()
	var requests errgroup.Group
	for range clients {
		requests.Go(func() error { return second(advance(t, s.RESTConfig(), "1h")) })
	}
	if err := requests.Wait(); err != nil {
		t.Fatal(err)
	}
	now := must(advance(t, s.RESTConfig(), "0s"))(t)
	if now.Before(before.Add(clients*time.Hour)) || now.After(time.Now().Add(clients*time.Hour)) {
		t.Errorf("%d hours after %v it is %v", clients, before, now)
	}
}

// The path needs a credential and, with RBAC, the right to post to it.
func TestWhoMayAdvance(t *testing.T) {
	t.Parallel()
	s := startSimulation(t)
	if _, err := advance(t, rest.AnonymousClientConfig(s.RESTConfig()), "1h"); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a credential: %v", err)
	}
	path := rbacv1.PolicyRule{NonResourceURLs: []string{advancePath}}
	reader, tester := path, path
	reader.Verbs, tester.Verbs = []string{"get"}, []string{"post"}
	s.grantTo(t, "", "reader", user("jane"), reader)
	s.grantTo(t, "", "tester", user("joe"), tester)
	_, err := advance(t, must(s.UserConfig("jane"))(t), "1h")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane" cannot post path "`+advancePath+`"`) {
		t.Errorf("jane: %v", err)
	}
	if now := must(advance(t, must(s.UserConfig("joe"))(t), "0s"))(t); now.After(time.Now()) {
		t.Errorf("the refused requests moved the time to %v", now)
	}
}

// A server that simulates nothing says so, and does not list the path.
func TestAdvanceWithoutSimulation(t *testing.T) {
	t.Parallel()
	cluster, _ := plainEtcd(t, foreignKeys)
	readOnly := start(t, controlplane.Options{Etcd: cluster, Controllers: true, Simulation: controlplane.NewSimulation()})
	for _, config := range []*rest.Config{shared.RESTConfig(), readOnly.RESTConfig()} {
		for _, method := range []string{"POST", "GET"} {
			answer, status := send(t, config, method, advancePath+"?by=1h")
			if answer.StatusCode != 404 || status.Reason != metav1.StatusReasonNotFound ||
				!strings.Contains(status.Message, "start keepwatch serve with --simulate") {
				t.Errorf("%s: %d %+v", method, answer.StatusCode, status)
			}
		}
		if lists(t, config) {
			t.Error("the path is listed")
		}
	}
	if !lists(t, startSimulation(t).RESTConfig()) {
		t.Error("a server with a simulation does not list the path")
	}
}

// lists reports whether the path is in a server's list of paths.
func lists(t *testing.T, config *rest.Config) bool {
	t.Helper()
	paths := must(request(t.Context(), config, "/", asJSON, "identity"))(t)
	return strings.Contains(paths.body, `"`+advancePath+`"`)
}
