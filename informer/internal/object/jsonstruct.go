package object

import (
	"reflect"
	"strings"
)

// jsonField is the plan of a field of a struct.
type jsonField struct {
	index  []int // of the field, after those of the structs that it is embedded in
	decode jsonPlan
}

// structPlan decodes structs by the names of their fields. It leaves a struct in which two fields have
// one name, or a field has another option than a name, to the API machinery.
func structPlan(t reflect.Type) jsonPlan {
	fields := map[string]*jsonField{}
	if !addFields(fields, t, nil) {
		return decodeByMachinery
	}
	return func(d *jsonDecoder, v reflect.Value) error {
		if d.null() {
			return nil
		}
		if d.peek() != '{' {
			return d.mismatch(v)
		}
		for more := d.enter(); more; more = d.more() {
			f := fields[string(d.name())]
			if f == nil {
				d.raw()
				continue
			}
			into := v
			for _, i := range f.index {
				into = into.Field(i)
			}
			if err := f.decode(d, into); err != nil {
				return err
			}
		}
		return nil
	}
}

// addFields adds the fields of a struct, and those of the structs that are embedded in it. It reports
// false if their names and types do not say all that encoding/json would do.
func addFields(fields map[string]*jsonField, t reflect.Type, path []int) (ok bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		index := append(path[:len(path):len(path)], i)
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || !f.IsExported() || !addFields(fields, f.Type, index) {
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
		if fields[name] != nil || strings.Contains(options, "string") {
			return false
		}
		fields[name] = &jsonField{index: index, decode: fieldPlan(t, f)}
	}
	return true
}

func fieldPlan(t reflect.Type, f reflect.StructField) jsonPlan {
	if f.Type.Kind() == reflect.String && distinct[t.Name()+"."+f.Name] {
		return decodeDistinct
	}
	return jsonPlanOf(f.Type)
}
