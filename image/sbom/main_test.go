package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The bill of this test's binary has the library that writes it, and Go, and is the same each time.
func TestDescribe(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var texts [2][]byte
	for i := range texts {
		out := filepath.Join(t.TempDir(), "bom.json")
		if err := run(self, "v1.2.3", out); err != nil {
			t.Fatal(err)
		}
		if texts[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("the bills of one binary differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(texts[0]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	subject := bom.Metadata.Component
	if subject.Version != "v1.2.3" || subject.Name != filepath.Base(self) || len((*subject.Hashes)[0].Value) != 64 {
		t.Errorf("the subject: %+v", subject)
	}
	for _, want := range []string{"pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go"), "pkg:golang/github.com/CycloneDX/cyclonedx-go@v"} {
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return strings.HasPrefix(c.PackageURL, want) }) {
			t.Errorf("%s is missing: %s", want, texts[0])
		}
	}
	if n, m := len(*bom.Components), len(*(*bom.Dependencies)[0].Dependencies); n != m {
		t.Errorf("%d components, %d dependencies", n, m)
	}
	if !json.Valid(texts[0]) {
		t.Error("no JSON")
	}
}

// A file that is no Go binary is an error.
func TestDescribeRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, binary := range []string{file, file + ".missing"} {
		if err := run(binary, "", filepath.Join(t.TempDir(), "out")); err == nil {
			t.Errorf("%s: no error", binary)
		}
	}
}
