// Command sbom writes the bill of materials of a Go binary: the modules and the Go version that it is made of, from
// its own build information, as CycloneDX JSON.
//
//	go run ./sbom -version v1.2.3 -o keepwatch-linux-amd64.cdx.json keepwatch-linux-amd64
//
// The same binary gives the same bytes: there is no time and no serial number in them.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "version of the binary (default that of its module)")
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if flag.NArg() != 1 || *out == "" {
		fmt.Fprintln(os.Stderr, "sbom: give one binary, and the file to write with -o")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, version, out string) error {
	bom, err := describe(binary, version)
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := cdx.NewBOMEncoder(file, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return file.Close()
}

// describe returns what a binary is made of.
func describe(binary, version string) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	if version == "" {
		version = info.Main.Version
	}
	digest := sha256.Sum256(text)
	subject := component(&debug.Module{Path: info.Main.Path, Version: version}, cdx.ComponentTypeApplication)
	subject.Name = filepath.Base(binary)
	subject.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}}
	components := []cdx.Component{component(&debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}, cdx.ComponentTypeLibrary)}
	references := []string{components[0].BOMRef}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, component(module, cdx.ComponentTypeLibrary))
		references = append(references, components[len(components)-1].BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &subject}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &references}}
	return bom, nil
}

// component names a module by its package URL.
func component(module *debug.Module, kind cdx.ComponentType) cdx.Component {
	url := "pkg:golang/" + module.Path
	if module.Version != "" {
		url += "@" + module.Version
	}
	return cdx.Component{BOMRef: url, Type: kind, Name: module.Path, Version: module.Version, PackageURL: url}
}
