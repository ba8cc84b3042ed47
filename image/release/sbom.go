package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"io"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes the bill of materials of a Go binary: the modules and the Go version that it is made of, from its
// own build information, as CycloneDX JSON. The same binary gives the same bytes: there is no time and no serial number
// in them.
func writeBill(w io.Writer, binary, name, version string) error {
	bom, err := describe(binary, name, version)
	if err != nil {
		return err
	}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// describe returns what a binary is made of.
func describe(binary, name, version string) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(text)
	subject := component(&debug.Module{Path: info.Main.Path, Version: version}, cdx.ComponentTypeApplication)
	subject.Name = name
	subject.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}}
	std := &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	components := []cdx.Component{component(std, cdx.ComponentTypeLibrary)}
	references := []string{components[0].BOMRef}
	for _, module := range info.Deps {
		if replaced := module.Replace; replaced != nil && replaced.Version == "" { // a folder of this repository
			module = &debug.Module{Path: module.Path, Version: version}
		} else if replaced != nil {
			module = replaced
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
