package examples

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const lastHandled = "keepwatch.io/last-handled-configuration"

// handled returns whether all handlers of a widget have succeeded, in a state of it with a value at a path: an operator
// notes the state that it has handled a moment after the last handler.
func handled(value string, path ...string) func(w *unstructured.Unstructured) bool {
	return func(w *unstructured.Unstructured) bool {
		for name := range w.GetAnnotations() {
			if strings.HasPrefix(name, "keepwatch.io/") && name != lastHandled {
				return false
			}
		}
		var state map[string]any
		return json.Unmarshal([]byte(w.GetAnnotations()[lastHandled]), &state) == nil &&
			text(&unstructured.Unstructured{Object: state}, path...) == value
	}
}

func handledSize(size string) func(w *unstructured.Unstructured) bool {
	return handled(size, "spec", "size")
}

func TestExceptions(t *testing.T) {
	r := newReader(t)
	p := r.run("exceptions")
	r.create("one", 1)
	r.becomes("one", handledSize("1"))
	for _, test := range []struct {
		times int
		parts []string
	}{
		{1, []string{"will be called again", "handler=stubborn", "in=1s", "the first failure"}},
		{1, []string{"will be called again", "handler=stubborn", "in=2s", "the second failure"}},
		{1, []string{"failed permanently", "handler=stubborn", "the third failure"}},
		{1, []string{"will be called again", "handler=panicking", "in=1s", "at the disco"}},
		{1, []string{"failed permanently", "handler=panicking", "gave up after 2 calls"}},
		{1, []string{"will be called again", "handler=waiting", "in=2s"}},
		{1, []string{"failed permanently", "handler=waiting", "the timeout of 3s is over"}},
		{1, []string{"handler succeeded", "handler=careless"}},
	} {
		if n := p.count(test.parts...); n != test.times {
			t.Errorf("%d lines with %q, want %d", n, test.parts, test.times)
		}
	}
	r.waitForEvent("stubborn failed permanently: the third failure, permanent")
	r.delete("one")
	p.end()
}

func TestTimers(t *testing.T) {
	r := newReader(t)
	p := r.run("timers")
	r.create("one", 7)
	seen := ""
	r.becomes("one", func(w *unstructured.Unstructured) bool { seen = text(w, "status", "seen"); return seen != "" })
	r.becomes("one", func(w *unstructured.Unstructured) bool { return text(w, "status", "seen") != seen })
	p.logs("nothing happens", "size=7")
	p.logs("at the second try")
	if n := p.count("handler=sharp", "will be called again", "in=100ms"); n == 0 {
		t.Error("the sharp timer was not called again after its error")
	}
	r.delete("one")
	p.end()
}

func TestDaemons(t *testing.T) {
	r := newReader(t)
	p := r.run("daemons")
	r.create("one", 1)
	p.logs("ping", "size=1")
	if n := p.count("handler=ping", "will be called again", "not ready"); n != 2 {
		t.Errorf("ping has failed %d times before", n)
	}
	r.patch("one", `{"spec":{"size":2},"metadata":{"annotations":{"hold":"yes"}}}`)
	r.becomes("one", func(w *unstructured.Unstructured) bool { return text(w, "status", "pinged") == "2" })
	p.logs("holding on")
	r.patch("one", `{"metadata":{"annotations":{"hold":null}}}`)
	p.logs("letting go", "the object is deleted or no longer passes the filter")
	r.delete("one")
	p.logs("goodbye")
	r.create("two", 1)
	p.logs("ping", "name=two")
	p.end()
	p.logs("goodbye", "name=two")
	again := r.run("daemons") // the finalizer goes when it runs
	r.delete("two")
	again.end()
}

func TestFields(t *testing.T) {
	r := newReader(t)
	p := r.run("fields")
	r.create("one", 3)
	r.becomes("one", handledSize("3"))
	r.patch("one", `{"spec":{"size":0}}`)
	p.logs("msg=size", "was=3", "is=0")
	p.logs(`msg="switched off"`)
	r.becomes("one", handledSize("0"))
	for _, phase := range []string{"Failed", "Running"} {
		r.patch("one", `{"status":{"phase":"`+phase+`"}}`, "status")
		p.logs("msg=phase", "is="+phase)
		r.becomes("one", handled(phase, "status", "phase"))
	}
	p.logs("msg=recovered")
	r.patch("one", `{"metadata":{"labels":{"example.com/team":"a"}}}`)
	p.logs("another team", `metadata.labels.example\\.com/team`)
	r.becomes("one", handled("a", "metadata", "labels", "example.com/team"))
	for _, message := range []string{"msg=size", `msg="switched off"`, "msg=recovered", "another team"} {
		if n := p.count(message); n != 1 {
			t.Errorf("%d lines with %q", n, message)
		}
	}
	r.delete("one")
	p.end()
}

func TestResume(t *testing.T) {
	r := newReader(t)
	p := r.run("resume")
	r.create("one", 1)
	r.create("two", 2)
	p.logs("msg=recorded", "cause=create", "total=3")
	r.becomes("one", handledSize("1"))
	r.becomes("two", handledSize("2"))
	p.end()
	r.patch("two", `{"spec":{"size":20}}`) // while no operator runs
	p = r.run("resume")
	p.logs("msg=recorded", "total=21")
	r.becomes("two", handledSize("20"))
	if p.count("msg=recorded", "name=one", "cause=resume") != 1 || p.count("msg=recorded", "name=two") != 1 ||
		p.count("msg=recorded") != 2 {
		t.Error("want one call for each widget")
	}
	r.delete("one")
	p.logs("msg=removed", "total=20")
	r.delete("two")
	p.logs("msg=removed", "total=0")
	p.end()
}

func TestChildren(t *testing.T) {
	r := newReader(t)
	p := r.run("children")
	maps := r.client.Resource(configMaps).Namespace("default")
	holds := func(size string) *unstructured.Unstructured {
		var child *unstructured.Unstructured
		r.eventually("a child of size "+size, func() (bool, string) {
			var err error
			child, err = maps.Get(t.Context(), "one", metav1.GetOptions{})
			return err == nil && text(child, "data", "size") == size, fmt.Sprint(child, err)
		})
		return child
	}
	r.create("one", 1)
	child := holds("1")
	w, err := r.widgets().Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if owner := metav1.GetControllerOf(child); owner == nil || owner.UID != w.GetUID() || owner.Kind != "Widget" ||
		owner.APIVersion != "example.com/v1" {
		t.Errorf("the child's owner is %v", owner)
	}
	r.patch("one", `{"spec":{"size":2}}`)
	holds("2")
	if err := maps.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := holds("2"); again.GetUID() == child.GetUID() {
		t.Error("the child is the same")
	}
	p.logs("the child was lost")
	r.delete("one")
	// This server has no garbage collector, unlike a cluster.
	if err := maps.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	p.end()
}

func TestLeases(t *testing.T) {
	r := newReader(t)
	replica := func(name string) *program {
		dir, err := programs()
		if err != nil {
			t.Fatal(err)
		}
		return r.start(dir+"/leases", "--identity", name)
	}
	by := func(name string) func(w *unstructured.Unstructured) bool {
		return func(w *unstructured.Unstructured) bool { return text(w, "status", "by") == name }
	}
	first := replica("first")
	first.logs("elected", "identity=first")
	second := replica("second")
	r.create("one", 1)
	r.becomes("one", by("first"))
	if second.count("elected") != 0 {
		t.Error("both are elected")
	}
	first.end()
	second.logs("elected", "identity=second")
	r.create("two", 2)
	r.becomes("two", by("second"))
	r.delete("one")
	r.delete("two")
	second.end()
}
