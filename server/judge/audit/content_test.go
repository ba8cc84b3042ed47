package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDigestIsCanonical(t *testing.T) {
	tests := []struct {
		name, a, b string
		equal      bool
	}{
		{"order of members", `{"a":{"x":1,"y":[2]},"b":"c"}`, `{"b":"c","a":{"y":[2],"x":1}}`, true},
		{"spelling of strings", `{"a":"\u0041\/<","\u0062":1}`, `{"a":"A/<","b":1}`, true},
		{"white space", "{ \"a\" : [ 1 ] }", `{"a":[1]}`, true},
		{"type", `{"apiVersion":"v1","kind":"Pod","a":1}`, `{"a":1}`, true},
		{"nested type", `{"spec":{"kind":"Pod"}}`, `{"spec":{}}`, false},
		{"large numbers", `{"a":9007199254740993}`, `{"a":9007199254740992}`, false},
		{"null", `{"a":null}`, `{}`, false},
		{"elements", `{"a":[1,2]}`, `{"a":[2,1]}`, false},
		{"empty values", `{"a":{}}`, `{"a":[]}`, false},
		{"parts of members", `{"a":"b","c":""}`, `{"a":"","c":"b"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var texts []string
			for _, text := range []string{tt.a, tt.b} {
				c, err := parseContent([]byte(text), false)
				if err != nil {
					t.Fatal(err)
				}
				canonical, err := c.canonical()
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, string(canonical))
			}
			if (texts[0] == texts[1]) != tt.equal {
				t.Errorf("canonical texts %q", texts)
			}
		})
	}
}

func TestContentsOnly(t *testing.T) {
	c, err := parseContent(
		[]byte(`{"metadata":{"name":"a","uid":"u","resourceVersion":"5","generation":3,"creationTimestamp":"t","managedFields":[{}],
		"ownerReferences":[{"name":"o","uid":"v"}],"labels":{"uid":"stays"}},"spec":{"uid":"stays"}}`), true)
	if err != nil {
		t.Fatal(err)
	}
	text, err := c.canonical()
	const want = `{"metadata":{"labels":{"uid":"stays"},"name":"a","ownerReferences":[{"name":"o"}]},"spec":{"uid":"stays"}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
}

// TestErrorsHaveNoText checks that an error about an object has nothing of its values.
func TestErrorsHaveNoText(t *testing.T) {
	for _, text := range []string{`{"data":{"a":"opensesame","a":"opensesame"}}`, `{"data":"opensesame`, `["opensesame"]`,
		`"opensesame"`, `{"data":opensesame}`} {
		for _, contentsOnly := range []bool{false, true} {
			if _, err := parseContent([]byte(text), contentsOnly); err == nil || strings.Contains(err.Error(), "opensesame") {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
}

func TestFields(t *testing.T) {
	var w walk
	a := content{"data": []byte(`{"a.b":1,"":2,"same":{"x":[1]},"n":1.0}`), "list": []byte(`[{"a":1},2,3]`),
		"only": []byte(`{}`), "type": []byte(`{}`)}
	b := content{"data": []byte(`{"a.b":2,"":3,"same":{"x":[1]},"n":1}`), "list": []byte(`[{"a":2},2]`),
		"type": []byte(`[]`)}
	if err := w.compareContents(a, b); err != nil {
		t.Fatal(err)
	}
	want := []string{`data[""]`, `data["a.b"]`, "data.n", "list[0].a", "list[2]", "only", "type"}
	if !slices.Equal(w.paths, want) || w.more != 0 {
		t.Errorf("got %q", w.paths)
	}
}

func TestFieldsAreBounded(t *testing.T) {
	var w walk
	many := content{}
	for i := range MaxFields + 3 {
		many[fmt.Sprint(i)] = []byte("1")
	}
	if err := w.compareContents(many, content{}); err != nil || len(w.paths) != MaxFields || w.more != 3 {
		t.Errorf("%d paths and %d more, %v", len(w.paths), w.more, err)
	}
}
