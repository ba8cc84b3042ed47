package object

import (
	"reflect"
	"strings"
)

// member is how a field of a struct is read from JSON.
type member struct {
	index []int
	read  reader
}

// structReader reads structs whose fields have names of their own. One whose names
// are to be decided between, or that says more of a field than its name, is left
// to the API machinery.
func structReader(t reflect.Type) reader {
	members := map[string]*member{}
	if !addMembers(members, t, nil) {
		return readElse
	}
	return func(r *tree, text *text, v reflect.Value) error {
		if text.null() {
			return nil
		}
		if text.peek() != '{' {
			return unfit(text, v)
		}
		for more := text.enter(); more; more = text.more() {
			m := members[string(text.name())]
			if m == nil {
				text.raw()
				continue
			}
			into := v
			for _, i := range m.index {
				into = into.Field(i)
			}
			if err := m.read(r, text, into); err != nil {
				return err
			}
		}
		return nil
	}
}

// addMembers adds the fields of a struct, and those of structs that are embedded
// in it; ok is false if that is not all that there is to know.
func addMembers(members map[string]*member, t reflect.Type, path []int) (ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		index := append(path[:len(path):len(path)], i)
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || !f.IsExported() || !addMembers(members, f.Type, index) {
				return false
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if members[name] != nil || strings.Contains(options, "string") {
			return false
		}
		members[name] = &member{index: index, read: fieldReader(t, f)}
	}
	return true
}

func fieldReader(t reflect.Type, f reflect.StructField) reader {
	if f.Type.Kind() == reflect.String && unique[t.Name()+"."+f.Name] {
		return readUniqueText
	}
	return readerOf(f.Type)
}
