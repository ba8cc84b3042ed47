package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
)

// The twin of splitting is decoding into a tree, as client-go does: both must read the
// same from each object, whatever its white space and order.

// value draws any JSON value.
func value(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Int64Range(-1<<40, 1<<40).AsAny(),
		rapid.Float64Range(-1e9, 1e9).AsAny(),
		rapid.String().AsAny(),
		rapid.SampledFrom([]string{"\"", "\\", "\n", "}", "\u2028", "managedFields", "😀"}).AsAny(),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.SliceOfN(value(depth-1), 0, 3).AsAny(),
			rapid.MapOfN(memberName(), value(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(kinds...)
}

func memberName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"name", "uid", "kind", "metadata", "managedFields", "items", "type", "object", "rows", "a\"b", "",
	}))
}

// object draws a Kubernetes object; typed or as an item of a built-in list.
func object(typed bool) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		metadata := map[string]any{
			"name":            rapid.StringMatching(`[a-z"\\é]{1,8}`).Draw(t, "name"),
			"resourceVersion": fmt.Sprint(rapid.Uint64Range(1, 1<<50).Draw(t, "revision")),
		}
		for _, name := range []string{"namespace", "uid"} {
			if rapid.Bool().Draw(t, "has "+name) {
				metadata[name] = rapid.String().Draw(t, name)
			}
		}
		for _, name := range []string{"managedFields", "labels", "annotations", "ownerReferences"} {
			if rapid.Bool().Draw(t, "has "+name) {
				metadata[name] = value(2).Draw(t, name)
			}
		}
		o := map[string]any{"metadata": metadata}
		for name, v := range rapid.MapOfN(memberName(), value(3), 0, 4).Draw(t, "members") {
			if name != "metadata" && name != "kind" && name != "apiVersion" {
				o[name] = v
			}
		}
		if typed {
			o["apiVersion"], o["kind"] = "example.com/v1", rapid.SampledFrom([]string{"Widget", "Odd\"Kind"}).Draw(t, "kind")
		}
		return o
	})
}

// write writes v with its members in random order, and white space.
func write(t *rapid.T, w io.Writer, v any, space string) {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		io.WriteString(w, "{"+space)
		if len(names) > 0 {
			slices.Sort(names) // so that a seed repeats
			names = rapid.Permutation(names).Draw(t, "order")
		}
		for i, name := range names {
			if i > 0 {
				io.WriteString(w, space+","+space)
			}
			write(t, w, name, space)
			io.WriteString(w, space+":"+space)
			write(t, w, v[name], space)
		}
		io.WriteString(w, space+"}")
	case []any:
		io.WriteString(w, "["+space)
		for i, e := range v {
			if i > 0 {
				io.WriteString(w, space+","+space)
			}
			write(t, w, e, space)
		}
		io.WriteString(w, space+"]")
	default:
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.Write(text)
	}
}

// wantEqualTree checks o against the tree of its text.
func wantEqualTree(t *rapid.T, o *Object, tree map[string]any, apiVersion, kind string) {
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var want, got unstructured.Unstructured
	if err := json.Unmarshal(text, &want.Object); err != nil {
		t.Fatal(err)
	}
	want.SetAPIVersion(apiVersion)
	want.SetKind(kind)
	if err := json.Unmarshal(o.JSON(), &got.Object); err != nil {
		t.Fatalf("%v in %s", err, o.JSON())
	}
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("JSON differs:\n%s", diff)
	}
	if bytes.IndexByte(o.JSON(), '\n') >= 0 {
		t.Errorf("more than one line: %s", o.JSON())
	}
	if o.Key() != (keepwatch.Key{Namespace: want.GetNamespace(), Name: want.GetName()}) ||
		want.GetUID() != "" && string(o.UID()) != string(want.GetUID()) || o.UID() == "" ||
		o.Revision().String() != want.GetResourceVersion() {
		t.Errorf("object is %v %v %v, want %s", o.Key(), o.UID(), o.Revision(), text)
	}
	metadata := want.Object["metadata"].(map[string]any)
	delete(metadata, "managedFields")
	small := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	var gotSmall map[string]any
	if err := json.Unmarshal(o.Metadata(), &gotSmall); err != nil {
		t.Fatalf("%v in %s", err, o.Metadata())
	}
	if diff := cmp.Diff(small, gotSmall); diff != "" {
		t.Errorf("metadata differs:\n%s", diff)
	}
}

var spaces = rapid.SampledFrom([]string{"", "", " ", "\n", "\r\n\t "})

func TestListTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typed := rapid.Bool().Draw(t, "typed")
		items := rapid.SliceOfN(object(typed), 0, 4).Draw(t, "items")
		list := map[string]any{
			"kind": "GadgetList", "apiVersion": "v7",
			"metadata": map[string]any{"resourceVersion": "9", "continue": "c"},
			"items":    anySlice(items),
		}
		var text strings.Builder
		write(t, &text, list, spaces.Draw(t, "space"))
		page, failure := readPage(text.String(), 1<<20)
		if failure != nil {
			t.Fatalf("%v: %s", failure, text.String())
		}
		if page.Revision != 9 || page.Continue != "c" || len(page.Objects) != len(items) {
			t.Fatalf("page %+v of %s", page, text.String())
		}
		for i, tree := range items {
			apiVersion, kind := "v7", "Gadget"
			if typed {
				apiVersion, kind = tree["apiVersion"].(string), tree["kind"].(string)
			}
			wantEqualTree(t, page.Objects[i].(*Object), tree, apiVersion, kind)
		}
	})
}

func TestWatchTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trees := rapid.SliceOfN(object(true), 0, 4).Draw(t, "objects")
		var text strings.Builder
		for _, tree := range trees {
			write(t, &text, map[string]any{"type": "MODIFIED", "object": tree}, spaces.Draw(t, "space"))
		}
		events, failure := readFrames(text.String(), 1<<20)
		if failure.Kind != keepwatch.Ended || len(events) != len(trees) {
			t.Fatalf("%d events of %d, %v: %s", len(events), len(trees), failure, text.String())
		}
		for i, tree := range trees {
			wantEqualTree(t, events[i].change.Object.(*Object), tree, tree["apiVersion"].(string), tree["kind"].(string))
		}
	})
}

func anySlice(items []map[string]any) []any {
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = item
	}
	return out
}
