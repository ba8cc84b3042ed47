package operator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/operator"
)

func TestResumeAfterARestart(t *testing.T) {
	p := newNamespace(t)
	make := func() *operator.Operator {
		op := p.operator("widgets.example.com")
		operator.OnCreate(op, func(_ context.Context, r *request) error {
			p.log.add("create %s", r.Object.Name)
			return nil
		})
		operator.OnUpdate(op, func(_ context.Context, r *request) error {
			p.log.add("update %s %v", r.Object.Name, r.Diff)
			return nil
		})
		operator.OnResume(op, func(_ context.Context, r *request) error {
			p.log.add("resume %s", r.Object.Name)
			return nil
		})
		return op
	}
	stop := p.start(make())
	p.create("one", "{size: 1}")
	p.waitHandled("one")
	p.waitFor("create one")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	p.patch("one", `{"spec": {"size": 2}}`) // while no operator runs
	p.patch("one", `{"spec": {"size": 3}}`)
	p.start(make())
	p.waitUntil("resumed and updated", func() (bool, string) {
		all := p.log.all()
		return len(all) == 3 && p.log.count("resume one") == 1 && p.log.count("update one [{change spec.size 1 3}]") == 1,
			fmt.Sprint(all)
	})
	p.waitHandled("one")
}

func TestBuiltInTypesAndUnstructuredOnes(t *testing.T) {
	p := newNamespace(t)
	maps := p.operator("configmaps", operator.Prefix("typed.example.com"))
	operator.OnCreate(maps, func(_ context.Context, r *operator.Request[*corev1.ConfigMap]) error {
		p.log.add("typed %s", r.Object.Data["key"])
		r.Patch.Set("data.answer", "42")
		return nil
	}, operator.Labels("mine=yes"))
	same := p.operator("configmaps", operator.Prefix("raw.example.com"))
	operator.OnUpdate(same, func(_ context.Context, r *operator.Request[*unstructured.Unstructured]) error {
		data, _, _ := unstructured.NestedString(r.Object.Object, "data", "answer")
		p.log.add("raw %s, %v", data, r.Diff)
		return nil
	}, operator.Labels("mine=yes"))
	p.start(maps, same)
	_, err := clients.CoreV1().ConfigMaps(p.name).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"mine": "yes"}},
		Data:       map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.waitUntil("both have seen it", func() (bool, string) {
		cm, err := clients.CoreV1().ConfigMaps(p.name).Get(t.Context(), "one", metav1.GetOptions{})
		all := strings.Join(p.log.all(), "; ")
		return err == nil && cm.Data["answer"] == "42" && p.log.count("typed value") == 1 &&
			cm.Annotations["raw.example.com/last-handled-configuration"] != "" &&
			strings.Contains(cm.Annotations["raw.example.com/last-handled-configuration"], "42"), all
	})
	for _, line := range p.log.all() {
		if strings.Contains(line, "example.com/") {
			t.Errorf("operators react to each other's notes: %s", line)
		}
	}
}

func TestEventsArePosted(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com")
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		r.Event(corev1.EventTypeNormal, "Greeted", "hello "+r.Object.Name)
		return operator.Permanent(errors.New("no luck"))
	}, operator.ID("greet"))
	p.start(op)
	one := p.create("one", "{}")
	p.waitUntil("events", func() (bool, string) {
		list, err := clients.CoreV1().Events(p.name).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(one.GetUID())})
		if err != nil {
			return false, err.Error()
		}
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Type+" "+e.Reason+": "+e.Message)
		}
		text := strings.Join(all, "; ")
		return strings.Contains(text, "Normal Greeted: hello one") &&
			strings.Contains(text, "Warning HandlerFailed: greet failed permanently: no luck"), text
	})
}

// TestRecreatedObjectIsNotWritten has a handler that returns after its object was replaced
// by another one of the same name.
func TestRecreatedObjectIsNotWritten(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com")
	first := make(chan types.UID, 1)
	next := make(chan struct{})
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		select {
		case first <- r.Object.UID:
			<-next
			r.Patch.Status("phase", "First")
		default:
			p.log.add("second")
		}
		return nil
	})
	p.start(op)
	p.create("one", "{}")
	p.waitUntil("the handler runs", func() (bool, string) { return len(first) == 1, "" })
	p.delete("one")
	p.create("one", "{}")
	close(next)
	p.waitFor("second")
	p.waitHandled("one")
	p.waitUntil("the first life is over", func() (bool, string) {
		return strings.Count(p.log.logged(), "handler succeeded") == 2, p.log.logged()
	})
	if status := p.get("one").Object["status"]; status != nil {
		t.Errorf("it has the status of another life: %v", status)
	}
	if strings.Contains(p.log.logged(), "cannot be handled") {
		t.Error("the operator counts that as a failure")
	}
}

func TestProgressInStatus(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com", operator.ProgressInStatus("status.operator"))
	stored := make(chan struct{})
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		p.log.add("try %d", r.Retry)
		if r.Retry == 0 {
			return operator.RetryAfter(errors.New("not yet"), time.Second)
		}
		<-stored
		r.Patch.Status("phase", "Ready")
		return nil
	}, operator.ID("make"))
	p.start(op)
	p.create("one", "{}")
	p.waitUntil("progress", func() (bool, string) {
		message, _, _ := unstructured.NestedString(p.get("one").Object, "status", "operator", "make", "message")
		return message == "not yet", message
	})
	close(stored)
	p.waitUntil("an end", func() (bool, string) {
		one := p.get("one")
		status, _, _ := unstructured.NestedMap(one.Object, "status")
		left, _ := status["operator"].(map[string]any)
		return status["phase"] == "Ready" && len(left) == 1 && left["last-handled-configuration"] == `{"spec":{}}` &&
			len(one.GetAnnotations()) == 0, fmt.Sprint(one)
	})
	p.waitFor("try 0", "try 1")
	operations := 0
	for _, f := range p.get("one").GetManagedFields() {
		if f.Manager == prefix {
			operations++
		}
	}
	if operations != 1 {
		t.Errorf("%d kinds of writes by the operator, want the status alone", operations)
	}
}

func TestProgressDroppedBySchemaFails(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com", operator.ProgressInStatus("status.pruned"))
	operator.OnCreate(op, func(_ context.Context, r *request) error {
		p.log.add("called")
		r.Patch.Status("calls", p.log.count("called")) // something new each time
		return nil
	})
	p.start(op)
	p.create("one", "{}")
	p.waitUntil("the warning is logged", func() (bool, string) {
		return strings.Contains(p.log.logged(), "preserve unknown fields"), p.log.logged()
	})
	p.waitUntil("the object has the condition", func() (bool, string) {
		condition := p.get("one").GetAnnotations()[prefix+"/handled-condition"]
		return strings.Contains(condition, "ProgressNotStored"), condition
	})
	if n := p.log.count("called"); n > 3 {
		t.Errorf("called %d times", n)
	}
}

func TestRunReturnsFatalErrors(t *testing.T) {
	nothing := func(context.Context, *request) error { return nil }
	for name, test := range map[string]struct {
		op   func() *operator.Operator
		want string
	}{
		"no resource of that name": {func() *operator.Operator {
			op := operator.New("gadgets.example.com", operator.StartupDeadline(0))
			operator.OnCreate(op, nothing)
			return op
		}, "the server has no resource gadgets.example.com"},
		"no group of that name": {func() *operator.Operator {
			op := operator.New("widgets.nowhere.com", operator.StartupDeadline(0))
			operator.OnCreate(op, nothing)
			return op
		}, "the server has no resource widgets.nowhere.com"},
		"no handlers": {func() *operator.Operator { return operator.New("widgets.example.com") }, "no handlers"},
		"a wrong selector": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnCreate(op, nothing, operator.Labels("a=b=c"))
			return op
		}, `label selector "a=b=c"`},
		"a wrong field": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnField(op, "spec..size", nothing)
			return op
		}, `field "spec..size"`},
		"an old value where nothing is old": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnCreate(op, nothing, operator.From("spec.size", 1))
			return op
		}, "options of update handlers only"},
		"two handlers of one name": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnCreate(op, nothing, operator.ID("x"))
			operator.OnCreate(op, nothing, operator.ID("x"))
			return op
		}, `handler "x": declared twice for create`},
		"a reserved name": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnCreate(op, nothing, operator.ID("handled-condition"))
			return op
		}, "this id is reserved"},
		"a wrong prefix": {func() *operator.Operator {
			op := operator.New("widgets.example.com", operator.Prefix("No_Name"))
			operator.OnCreate(op, nothing)
			return op
		}, `prefix "No_Name"`},
		"a start that fails": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.OnCreate(op, nothing)
			operator.OnStart(op, func(context.Context, *rest.Config) error { return errors.New("no database") })
			return op
		}, "operator of widgets.example.com: OnStart: no database"},
		"a timer without an interval": {func() *operator.Operator {
			op := operator.New("widgets.example.com")
			operator.Timer(op, 0, nothing)
			return op
		}, "the interval must be positive"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), await.Deadline)
		err := operator.Run(ctx, api, test.op())
		if err == nil || !strings.Contains(err.Error(), test.want) || ctx.Err() != nil {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
		cancel()
	}
}

func TestForbiddenResourceIsFatal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w,
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "you may not"}`)
	}))
	defer server.Close()
	op := operator.New("widgets.example.com", operator.StartupDeadline(0))
	operator.OnCreate(op, func(context.Context, *request) error { return nil })
	if err := op.Run(t.Context(), &rest.Config{Host: server.URL}); err == nil ||
		!strings.Contains(err.Error(), "you may not") {
		t.Errorf("it ends with %v", err)
	}
}

func TestRunWaitsForAnUnreachableServer(t *testing.T) {
	p := newNamespace(t)
	op := p.operator("widgets.example.com", operator.StartupDeadline(0))
	operator.OnCreate(op, func(context.Context, *request) error { return nil })
	stop := p.startWith(&rest.Config{Host: "http://127.0.0.1:1"}, op)
	p.waitUntil("it waits", func() (bool, string) {
		return strings.Count(p.log.logged(), "waiting for the resource") >= 2, p.log.logged()
	})
	if err := stop(); err != nil {
		t.Errorf("asked to stop, it ends with %v", err)
	}
	if err := op.Run(t.Context(), api); err == nil || !strings.Contains(err.Error(), "has run already") {
		t.Errorf("run twice: %v", err)
	}
}
