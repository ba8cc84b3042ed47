package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// released matches the versions of releases and candidates.
var released = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-rc\.([1-9]\d*))?$`)

// unreleased is the folder of a version that is not released.
const unreleased = "main"

// folderOf is a version's folder in the site.
func folderOf(version string) string {
	if released.MatchString(version) {
		return version
	}
	return unreleased
}

// published is a version that the site has, with its pages.
type published struct {
	Name  string   `json:"name"`
	Pages []string `json:"pages"`
}

// writeVersions writes the list of the versions whose folders the site has, and the start page, which leads to the
// newest release, to the newest candidate if there is none, or to main.
func writeVersions(out string) error {
	entries, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	var all []published
	for _, entry := range entries {
		if !entry.IsDir() || folderOf(entry.Name()) != entry.Name() {
			continue
		}
		pages, err := pagesOf(filepath.Join(out, entry.Name()))
		if err != nil {
			return err
		}
		all = append(all, published{entry.Name(), pages})
	}
	slices.SortFunc(all, func(a, b published) int { return compare(b.Name, a.Name) })
	list, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(out, "versions.js"), fmt.Appendf(nil, "versions(%s);\n", list)); err != nil {
		return err
	}
	newest := all[0].Name
	const start = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Keepwatch</title>\n" +
		"<meta http-equiv=\"refresh\" content=\"0; url=%[1]s/index.html\">\n<a href=\"%[1]s/index.html\">%[1]s</a></html>\n"
	return write(filepath.Join(out, "index.html"), fmt.Appendf(nil, start, newest))
}

// pagesOf returns the HTML files below a folder.
func pagesOf(folder string) (pages []string, err error) {
	err = filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".html" {
			return err
		}
		at, err := filepath.Rel(folder, name)
		pages = append(pages, filepath.ToSlash(at))
		return err
	})
	return pages, err
}

// compare orders folders: main, candidates, releases, and the newer ones of both last.
func compare(a, b string) int {
	ka, kb := order(a), order(b)
	return slices.CompareFunc(ka[:], kb[:], cmp.Compare[int])
}

func order(name string) (key [5]int) {
	found := released.FindStringSubmatch(name)
	if found == nil {
		return key // main
	}
	key[0] = 1
	if !strings.Contains(name, "-") {
		key[0] = 2
	}
	for i, digits := range found[1:] {
		key[i+1], _ = strconv.Atoi(digits) // none: 0
	}
	return key
}
