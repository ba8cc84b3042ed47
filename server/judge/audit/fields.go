package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// addFields reads an object of both sides again, and adds the paths of the fields that differ.
func (d *Difference) addFields(ctx context.Context, server, against side) error {
	var a, b content
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) { a, err = server.content(ctx, d.Key()); return err })
	group.Go(func() (err error) { b, err = against.content(ctx, d.Key()); return err })
	if err := group.Wait(); err != nil {
		return err
	}
	if a == nil || b == nil {
		return errors.New("one object alone could not be read again")
	}
	var w walk
	if err := w.compareContents(a, b); err != nil {
		return err
	}
	d.Fields, d.MoreFields = w.paths, w.more
	return nil
}

// walk collects the paths of the fields that differ.
type walk struct {
	paths []string
	more  int // paths that are left out
}

func (w *walk) compareContents(a, b content) error {
	x, err := a.tree()
	if err != nil {
		return err
	}
	y, err := b.tree()
	if err != nil {
		return err
	}
	w.compare("", x, y)
	return nil
}

// tree returns the content as Go values, with numbers as they were written.
func (c content) tree() (tree any, err error) {
	text, err := c.canonical()
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return tree, decoder.Decode(&tree)
}

func (w *walk) compare(path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			w.members(path, x, y)
			return
		}
	case []any:
		if y, ok := b.([]any); ok {
			w.elements(path, x, y)
			return
		}
	}
	if !reflect.DeepEqual(a, b) {
		w.add(path)
	}
}

func (w *walk) members(path string, a, b map[string]any) {
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x, inA := a[name]
		y, inB := b[name]
		switch below := member(path, name); {
		case inA && inB:
			w.compare(below, x, y)
		default:
			w.add(below)
		}
	}
}

func (w *walk) elements(path string, a, b []any) {
	for i := range max(len(a), len(b)) {
		below := fmt.Sprintf("%s[%d]", path, i)
		if i < len(a) && i < len(b) {
			w.compare(below, a[i], b[i])
		} else {
			w.add(below)
		}
	}
}

func (w *walk) add(path string) {
	if len(w.paths) == MaxFields {
		w.more++
		return
	}
	w.paths = append(w.paths, path)
}

// member returns the path of a member: metadata.name, metadata.labels["app.kubernetes.io/name"].
func member(path, name string) string {
	switch {
	case name == "" || strings.ContainsAny(name, ".[]\" /"):
		return fmt.Sprintf("%s[%q]", path, name)
	case path == "":
		return name
	}
	return path + "." + name
}
