package project_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/keepwatch/keepwatch/stream/project"
)

const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"7",` +
	`"labels":{"app.kubernetes.io/name":"shop","tier":"<web>"},"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"secret\":1}","x":"y"}},` +
	`"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i1","env":[{"name":"PASSWORD","value":"secret"}]},{"name":"d","image":"i2"}]},` +
	`"big":12345678901234567890,"nothing":null}`

const head = `{"apiVersion":"v1","kind":"Pod",`

func TestApply(t *testing.T) {
	for name, row := range map[string]struct {
		options project.Options
		want    string
	}{
		"one field": {project.Options{Fields: []string{"spec.nodeName"}},
			head + `"metadata":{"name":"a","namespace":"b","resourceVersion":"7","uid":"u"},"spec":{"nodeName":"n1"}}`},
		"kubectl's spelling": {project.Options{Fields: []string{"{.spec.containers[*].image}"}},
			head + `"metadata":{"name":"a","namespace":"b","resourceVersion":"7","uid":"u"},"spec":{"containers":[{"image":"i1"},{"image":"i2"}]}}`},
		"quoted, element, number": {project.Options{Fields: []string{"metadata.labels['app.kubernetes.io/name']",
			"$.spec.containers[1].name", "big"}},
			`{"apiVersion":"v1","big":12345678901234567890,"kind":"Pod","metadata":{"labels":{"app.kubernetes.io/name":"shop"},"name":"a","namespace":"b","resourceVersion":"7","uid":"u"},"spec":{"containers":[{"name":"d"}]}}`},
		"a field that does not exist": {project.Options{Fields: []string{"status.phase"}},
			head + `"metadata":{"name":"a","namespace":"b","resourceVersion":"7","uid":"u"}}`},
		"a whole and its part": {project.Options{Fields: []string{"metadata.labels", "metadata.labels.tier"}},
			head + `"metadata":{"labels":{"app.kubernetes.io/name":"shop","tier":"<web>"},"name":"a","namespace":"b","resourceVersion":"7","uid":"u"}}`},
		"redacted and selected": {project.Options{Redact: []string{"spec.containers[*].env[*].value"},
			Fields: []string{"spec.containers[0].env", "metadata.annotations"}},
			head + `"metadata":{"annotations":{"x":"y"},"name":"a","namespace":"b","resourceVersion":"7","uid":"u"},"spec":{"containers":[{"env":[{"name":"PASSWORD","value":"REDACTED"}]}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := project.New(row.options)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Apply([]byte(pod))
			if err != nil || string(got) != row.want {
				t.Errorf("got %s, %v\nwant %s", got, err, row.want)
			}
		})
	}
}

// TestCopies removes the annotations in which tools repeat what is not stored; those of a Secret all.
func TestCopies(t *testing.T) {
	annotations := map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": `{"data":{"p":"hidden"}}`,
		"app.oam.dev/last-applied-configuration":           "hidden",
		"kopf.zalando.org/last-handled-configuration":      `{"spec":"hidden"}`,
		"keepwatch.io/last-handled-configuration":          `{"spec":"hidden"}`,
		"banzaicloud.com/last-applied":                     "hidden",
		"kapp.k14s.io/original":                            `{"data":"hidden"}`,
		"objectset.rio.cattle.io/applied":                  "hidden",
		"example.com/manifest":                             `{"apiVersion":"v1","kind":"Secret","data":{"p":"hidden"}}`,
		"example.com/yaml":                                 "apiVersion: v1\nkind: Secret\ndata: {p: hidden}\n",
		"example.com/zipped":                               "H4sIAAAAAAAAA0vKS08BAGnvnkEDAAAAhidden",
		"example.com/team":                                 "shop",
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Thing", "data": map[string]string{"p": "hidden"}, "metadata": map[string]any{"name": "a",
			"annotations": annotations},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]project.Options{
		"fields": {Fields: []string{"metadata"}}, "redact": {Redact: []string{"data.*"}}, "metadata only": {Metadata: true,
			Fields: []string{"metadata.annotations"}},
	} {
		for _, o.Secret = range []bool{false, true} {
			p, err := project.New(o)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.Apply(text)
			if err != nil || strings.Contains(string(got), "hidden") ||
				strings.Contains(string(got), `"example.com/team":"shop"`) == o.Secret {
				t.Errorf("%s, a Secret %v: %s, %v", name, o.Secret, got, err)
			}
		}
	}
}

// TestRedactEverywhere redacts members of any object, and no secret remains.
func TestRedactEverywhere(t *testing.T) {
	p, err := project.New(project.Options{Redact: []string{"data.*", "stringData.*"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Apply(
		[]byte(`{"kind":"Secret","data":{"a":"c2VjcmV0","b":["secret"]},"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"secret"}}}`))
	if err != nil || strings.Contains(string(got), "secret") || strings.Contains(string(got), "c2VjcmV0") {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestPathErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                         `path "" is empty`,
		"{.spec":                   `path "{.spec": } is missing`,
		"spec..x":                  `at "..x": a name is missing`,
		"spec.":                    `at ".": a name is missing`,
		"spec[0":                   "] is missing",
		"spec['a":                  "the name has no end",
		"spec[-1]":                 "only ['names'], [numbers] and [*]",
		`items[?(@.name=="x")].y`:  "only ['names'], [numbers] and [*]",
		"{range .items[*]}{.name}": "are supported",
		`data.tls\.key`:            "is written as ['tls.key']", // kubectl's way; it must not redact nothing
		`data['tls\.key']`:         "as in ['tls.key']",
		"data['a','b']":            "names one field",
		"data.a,data.b":            "names one field",
		"data.pass*":               "are supported",
	} {
		if _, err := project.New(project.Options{Fields: []string{text}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestMetadataHasNoOtherFields checks which paths are refused for objects of which only the metadata is requested.
func TestMetadataHasNoOtherFields(t *testing.T) {
	for text, refused := range map[string]bool{
		"data": true, "{.spec.nodeName}": true, "kind": true,
		"metadata": false, "{.metadata.labels}": false, "['metadata'].annotations": false, "*.labels": false,
	} {
		_, err := project.New(project.Options{Fields: []string{text}, Metadata: true})
		if (err != nil) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzApply checks that any path is refused or applied, that what is kept is in the object, and that a second
// application changes nothing.
func FuzzApply(f *testing.F) {
	for _, path := range []string{"spec.nodeName", "{.spec.containers[*].image}", "metadata.labels['a.b']", "a[0].*",
		"$.x"} {
		f.Add(path, "data.*", []byte(pod))
	}
	f.Fuzz(func(t *testing.T, field, redacted string, object []byte) {
		p, err := project.New(project.Options{Fields: []string{field}, Redact: []string{redacted}})
		if err != nil {
			return
		}
		once, err := p.Apply(object)
		if err != nil {
			return
		}
		if !json.Valid(once) {
			t.Fatalf("%q of %q is no JSON: %q", field, object, once)
		}
		if strings.ContainsAny(field+redacted, "[") { // elements move when others are removed
			return
		}
		twice, err := p.Apply(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%q of %q is %q, and then %q, %v", field, object, once, twice, err)
		}
	})
}
