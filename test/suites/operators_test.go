package suites

import (
	"slices"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// A module for an operator's tests requires the operator, and as modules what the operator has in folders.
func TestOperatorModule(t *testing.T) {
	mod, err := modfile.Parse("go.mod", []byte(`module example.com/operator

go 1.26

require (
	example.com/operator/api v0.0.0-00010101000000-000000000000
	example.com/forked v1.0.0
)

replace example.com/operator/api => ./api

replace example.com/forked => example.com/fork v1.0.1
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := operator{module: "example.com/operator", version: "v1.2.3"}.require(mod)
	if err != nil {
		t.Fatal(err)
	}
	got, err := modfile.Parse("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	var required []string
	for _, r := range got.Require {
		required = append(required, r.Mod.String())
	}
	slices.Sort(required)
	want := []string{"example.com/forked@v1.0.0", "example.com/operator/api@v1.2.3", "example.com/operator@v1.2.3"}
	if !slices.Equal(required, want) {
		t.Errorf("requires %q, want %q", required, want)
	}
	if len(got.Replace) != 1 || got.Replace[0].New != (module.Version{Path: "example.com/fork", Version: "v1.0.1"}) {
		t.Errorf("replaces %v", got.Replace)
	}
}
