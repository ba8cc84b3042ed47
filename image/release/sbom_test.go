package main

import (
	"bytes"
	"encoding/json"
	"io"
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
		var text bytes.Buffer
		if err := writeBill(&text, self, "program-linux-amd64", "v1.2.3"); err != nil {
			t.Fatal(err)
		}
		texts[i] = text.Bytes()
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("the bills of one binary differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(texts[0]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	subject := bom.Metadata.Component
	if subject.Version != "v1.2.3" || subject.Name != "program-linux-amd64" || len((*subject.Hashes)[0].Value) != 64 {
		t.Errorf("the subject: %+v", subject)
	}
	std := "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")
	for _, want := range []string{std, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v"} {
		isWanted := func(c cdx.Component) bool { return strings.HasPrefix(c.PackageURL, want) }
		if !slices.ContainsFunc(*bom.Components, isWanted) {
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
		if err := writeBill(io.Discard, binary, "", ""); err == nil {
			t.Errorf("%s: no error", binary)
		}
	}
}
