package watchcache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apistorage "k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/store"
)

// Every object that a predicate selects has the value of its term; the twin is the selector itself.
func TestTermsAreImplied(t *testing.T) {
	c := &Cache{family: &family{interner: newInterner()}}
	values := rapid.SampledFrom([]string{"", "a", "b", "node-1"})
	rapid.Check(t, func(t *rapid.T) {
		labelText, fieldText := "", ""
		for i := range rapid.IntRange(0, 3).Draw(t, "labels") {
			operator := rapid.SampledFrom([]string{"%s=%s", "%s==%s", "%s!=%s", "%s in (%s)", "%s in (%s,b)", "%s notin (%s)",
				"%s"}).Draw(t, "operator")
			args := []any{fmt.Sprint("l", i), values.Draw(t, "value")}
			if operator == "%s" {
				args = args[:1]
			}
			labelText += "," + fmt.Sprintf(operator, args...)
		}
		for i := range rapid.IntRange(0, 2).Draw(t, "fields") {
			operator := rapid.SampledFrom([]string{"=", "==", "!="}).Draw(t, "operator")
			fieldText += fmt.Sprintf(",f%d%s%s", i, operator, values.Draw(t, "value"))
		}
		label, err := labels.Parse(trimComma(labelText))
		if err != nil {
			t.Fatal(err)
		}
		p := predicate{apistorage.SelectionPredicate{Label: label, Field: fields.ParseSelectorOrDie(trimComma(fieldText))},
			nil}
		set := func(prefix string) attributes {
			m := map[string]string{}
			for i := range 3 {
				if rapid.Bool().Draw(t, "set") {
					m[fmt.Sprint(prefix, i)] = values.Draw(t, "value")
				}
			}
			return c.interner.attributes(keepwatch.Key{Name: "x"}, m)
		}
		o := &Object{Object: keyOnly{Name: "x"}, family: c.family}
		o.content.Store(&content{encoding: message, labels: set("l"), fields: set("f")})
		term := p.term()
		if !o.matches(&p) || term == nil {
			return
		}
		if value, known := c.termOf(o, term.Name); !known || value != term.Value {
			t.Fatalf("%q, %q select an object whose %s is %q, %t; the term is %q", labelText, fieldText, term.Name, value, known,
				term.Value)
		}
	})
}

// A client that repeats what it selects has each name looked up once, and few names.
func TestTermsAreBounded(t *testing.T) {
	const many = 10 * maxTermIndexes
	label, err := labels.Parse("l=a" + strings.Repeat(",l=a", many))
	if err != nil {
		t.Fatal(err)
	}
	repeated, names := "a=x"+strings.Repeat(",a=x,a=y", many), ""
	for i := range many {
		names += fmt.Sprintf(",f%d=a", i)
	}
	for text, want := range map[string]int{repeated: 2, repeated + names: maxTermIndexes} {
		p := predicate{apistorage.SelectionPredicate{Label: label, Field: fields.ParseSelectorOrDie(text)}, nil}
		if all := slices.Collect(p.terms()); len(all) != want || all[0] != (store.Term{Name: fieldTerm + "a", Value: "x"}) {
			t.Errorf("%d terms, want %d: %v", len(all), want, all)
		}
	}
}

func trimComma(text string) string {
	if text == "" {
		return ""
	}
	return text[1:]
}
