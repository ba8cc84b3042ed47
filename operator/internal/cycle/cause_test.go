package cycle

import (
	"testing"
	"time"
)

func TestCausesInTheirOrder(t *testing.T) {
	everything := spec(
		Handler{ID: "change", Causes: Create | Update | Resume},
		Handler{ID: "end", Causes: Delete},
	)
	const (
		plain   = `{"metadata": {"finalizers": ["` + finalizer + `"]}, "spec": {"size": 1}}`
		ending  = `{"metadata": {"finalizers": ["` + finalizer + `"], "deletionTimestamp": "2026-03-01T12:00:00Z"}}`
		ended   = `{"metadata": {"finalizers": ["other"], "deletionTimestamp": "2026-03-01T12:00:00Z"}}`
		another = `{"metadata": {"finalizers": ["` + finalizer + `"]}, "spec": {"size": 2}}`
	)
	for _, test := range []struct {
		name string
		seen Seen
		want Cause
	}{
		{"gone, whatever it was", Seen{Object: object(ending), Gone: true}, Gone},
		{"deleted without our finalizer", Seen{Object: object(ended)}, Free},
		{"deleted", Seen{Object: object(ending), Listed: true}, Delete},
		{"deleted, and handled before", Seen{Object: handled(t, everything, object(ending))}, Delete},
		{"never handled", Seen{Object: object(plain)}, Create},
		{"never handled, in the first list", Seen{Object: object(plain), Listed: true}, Create},
		{"handled, in the first list", Seen{Object: handled(t, everything, object(plain)), Listed: true}, Resume},
		{"handled", Seen{Object: handled(t, everything, object(plain))}, Noop},
		{"changed", Seen{Object: changed(t, everything, plain, another)}, Update},
		{"changed, in the first list", Seen{Object: changed(t, everything, plain, another), Listed: true}, Update},
	} {
		if p := plan(t, everything, test.seen, noon); p.Cause != test.want {
			t.Errorf("%s: %v, want %v", test.name, p.Cause, test.want)
		}
	}
}

// changed is an object that was handled as it was before.
func changed(t *testing.T, s Spec, before, after string) map[string]any {
	t.Helper()
	notes, _ := lookup(handled(t, s, object(before)), Path{"metadata", "annotations"})
	o := object(after)
	put(o, Path{"metadata", "annotations"}, notes)
	return o
}

func TestOnlyDesiredStateCounts(t *testing.T) {
	s := spec(Handler{ID: "any", Causes: Update}, Handler{ID: "phase", Causes: Update, Field: Path{"status", "phase"}})
	const before = `{"apiVersion": "v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"app": "web"}}, "spec": {"size": 1}, "status": {"phase": "New", "more": 1}}`
	for _, test := range []struct{ name, after string }{
		{"nothing", before},
		{"version and system metadata",
			`{"apiVersion": "v2", "kind": "Gadget", "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "generation": 3, "finalizers": ["f"], "managedFields": [], "labels": {"app": "web"}}, "spec": {"size": 1}, "status": {"phase": "New", "more": 1}}`},
		{"a status field without a handler",
			`{"metadata": {"labels": {"app": "web"}}, "spec": {"size": 1}, "status": {"phase": "New", "more": 2}}`},
		{"a number's notation",
			`{"metadata": {"labels": {"app": "web"}}, "spec": {"size": 1.0}, "status": {"phase": "New"}}`},
		{"kubectl's annotation",
			`{"metadata": {"labels": {"app": "web"}, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}, "spec": {"size": 1}, "status": {"phase": "New"}}`},
		{"another operator's annotations",
			`{"metadata": {"labels": {"app": "web"}, "annotations": {"other.io/last-handled-configuration": "{}", "other.io/create": "{}"}}, "spec": {"size": 1}, "status": {"phase": "New"}}`},
		{"a kopf operator's annotations",
			`{"metadata": {"labels": {"app": "web"}, "annotations": {"k.io/kopf-managed": "yes", "k.io/fn": "{}"}}, "spec": {"size": 1}, "status": {"phase": "New"}}`},
	} {
		o := object(test.after)
		kept, _ := annotation(handled(t, s, object(before)), prefix+"/"+handledName)
		put(o, Path{"metadata", "annotations", prefix + "/" + handledName}, kept)
		if p := plan(t, s, Seen{Object: o}, noon); p.Cause != Noop {
			t.Errorf("%s: %v because of %v", test.name, p.Cause, p.Diff)
		}
	}
	for _, test := range []struct{ name, after, path string }{
		{"spec", `{"metadata": {"labels": {"app": "web"}}, "spec": {"size": 2}, "status": {"phase": "New"}}`, "spec.size"},
		{"label", `{"metadata": {"labels": {"app": "db"}}, "spec": {"size": 1}, "status": {"phase": "New"}}`,
			"metadata.labels.app"},
		{"annotation",
			`{"metadata": {"labels": {"app": "web"}, "annotations": {"a.io/b": "c"}}, "spec": {"size": 1}, "status": {"phase": "New"}}`, `metadata.annotations`},
		{"a field outside of the spec",
			`{"metadata": {"labels": {"app": "web"}}, "spec": {"size": 1}, "data": {"k": "v"}, "status": {"phase": "New"}}`,
			"data"},
		{"status that was asked for",
			`{"metadata": {"labels": {"app": "web"}}, "spec": {"size": 1}, "status": {"phase": "Old"}}`, "status.phase"},
	} {
		o := object(test.after)
		kept, _ := annotation(handled(t, s, object(before)), prefix+"/"+handledName)
		put(o, Path{"metadata", "annotations", prefix + "/" + handledName}, kept)
		p := plan(t, s, Seen{Object: o}, noon)
		if p.Cause != Update || len(p.Diff) != 1 || p.Diff[0].Path.String() != test.path {
			t.Errorf("%s: %v, %v; want an update of %s", test.name, p.Cause, p.Diff, test.path)
		}
	}
}

func TestDifferences(t *testing.T) {
	diff := Compare(
		object(`{"a": 1, "b": {"c": "x", "d": [1, 2]}, "gone": {"x": 1}, "same": {"y": null}}`),
		object(`{"a": 2, "b": {"c": "x", "d": [2, 1], "e": {}}, "same": {"z": null}}`))
	want := []struct {
		op   Op
		path string
	}{{ChangeOp, "a"}, {ChangeOp, "b.d"}, {AddOp, "b.e"}, {RemoveOp, "gone"}}
	if len(diff) != len(want) {
		t.Fatalf("%v", diff)
	}
	for i, w := range want {
		if diff[i].Op != w.op || diff[i].Path.String() != w.path {
			t.Errorf("%d: %v %v, want %v %v", i, diff[i].Op, diff[i].Path, w.op, w.path)
		}
	}
	if part := within(diff, Path{"gone", "x"}); len(part) != 1 || part[0].Op != RemoveOp || part[0].Old != int64(1) {
		t.Errorf("what happened to a field that went with what it was in: %v", part)
	}
	if part := within(diff, Path{"b", "c"}); len(part) != 0 {
		t.Errorf("what happened to a field that stayed: %v", part)
	}
}

func TestPaths(t *testing.T) {
	for _, text := range []string{"spec", "spec.size", `metadata.labels.app\.kubernetes\.io/name`, `a\\b.c`} {
		p, err := ParsePath(text)
		if err != nil || p.String() != text {
			t.Errorf("%q is %q, %v", text, p, err)
		}
	}
	if p, err := ParsePath(`metadata.labels.app\.io/x`); err != nil || len(p) != 3 || p[2] != "app.io/x" {
		t.Errorf("%q, %v", p, err)
	}
	for _, text := range []string{"", "spec.", "a..b", "."} {
		if p, err := ParsePath(text); err == nil {
			t.Errorf("%q is %q", text, p)
		}
	}
}

// The names are those of kopf 1.44 (its "V2" keys), computed with Python.
func TestAnnotationNames(t *testing.T) {
	repeat := func(s string, n int) (all string) {
		for range n {
			all += s
		}
		return all
	}
	for id, want := range map[string]string{
		"create_fn/spec.field":                      "kopf.zalando.org/create_fn.spec.field",
		repeat("x", 64):                             "kopf.zalando.org/" + repeat("x", 56) + "-SItAqA",
		repeat("a", 40) + "/<b>/" + repeat("c", 40): "kopf.zalando.org/" + repeat("a", 40) + "._b_.ccccccccccc-POiU.Q",
		repeat("y", 63):                             "kopf.zalando.org/" + repeat("y", 63),
	} {
		if got := (Keys{"kopf.zalando.org"}).Of(id, ""); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	if k := (Keys{prefix}); !k.Reserved("handled-condition") || !k.Reserved("last-handled-configuration") ||
		k.Reserved("create") {
		t.Error("names that have a meaning are free, or others are not")
	}
}

// A Deployment's annotations are copied to its ReplicaSets.
func TestReplicaSetIgnoresDeploymentsAnnotations(t *testing.T) {
	s := spec(Handler{ID: "any", Causes: Create | Update})
	parent := handled(t, s, object(`{"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1}}`))
	child := object(
		`{"kind": "ReplicaSet", "metadata": {"name": "d-1", "ownerReferences": [{"kind": "Deployment"}]}, "spec": {"replicas": 1}}`)
	put(child, Path{"metadata", "annotations"}, annotationsOf(parent))
	p := plan(t, s, Seen{Object: child}, noon)
	call, ok := p.Step.(Call)
	if p.Cause != Create || !ok {
		t.Fatalf("%v, %T", p.Cause, p.Step)
	}
	child = apply(child, p.Called(call, Verdict{Final: true}, noon).(Write).Edits, finalizer)
	if p := plan(t, s, Seen{Object: child}, noon); p.Cause != Noop {
		t.Errorf("%v after it was handled", p.Cause)
	}
}

func TestUnreadableProgressIsAnError(t *testing.T) {
	s := spec(Handler{ID: "any", Causes: Create | Update})
	for _, name := range []string{handledName, handlingName, "any"} {
		for _, text := range []string{"{", "7", `"x"`} {
			o := object(`{"metadata": {"annotations": {}}}`)
			put(o, Path{"metadata", "annotations", prefix + "/" + name}, text)
			if p, err := s.Plan(Seen{Object: o}, noon); err == nil {
				t.Errorf("%s = %s: %v, %T", name, text, p.Cause, p.Step)
			}
		}
	}
}

func TestMessagesAreTruncated(t *testing.T) {
	long := make([]byte, 10*maxMessage)
	for i := range long {
		long[i] = "ä"[i%2]
	}
	if s := Brief(string(long)); len(s) > maxMessage || len(s) < maxMessage-8 {
		t.Errorf("%d bytes", len(s))
	}
	if d := time.Second; stamp(noon.Add(d+time.Nanosecond)) != noon.Add(d) {
		t.Error("times are kept in microseconds")
	}
}
