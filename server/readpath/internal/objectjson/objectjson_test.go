package objectjson

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var (
	objects = flag.Int("objects", 12, "number of objects of each kind")
	seed    = flag.Uint64("seed", 1, "draw objects as a run did that printed this seed; 0 draws anew")
)

// TestAsUpstream encodes random objects of every kind, with values that a server would reject too, and
// compares the bytes with those of the API machinery's serializer.
func TestAsUpstream(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme,
		metav1.AddMetaToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	r := &filler{Rand: rand.New(rand.NewPCG(*seed, 1))}
	encoded, failed := 0, 0
	for _, gvk := range sorted(known.AllKnownTypes()) {
		for range *objects {
			o, err := known.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			r.broken, r.left, r.empty = r.IntN(4) == 0, 3000, oneOf(r, 2, 4, 8)
			r.fill(reflect.ValueOf(o).Elem(), 0)
			before := o.DeepCopyObject()
			var want bytes.Buffer
			wantErr := info.Serializer.Encode(o, &want)
			got, ok := Append([]byte("before "), o)
			switch {
			case ok != (wantErr == nil):
				t.Fatalf("%v: Append returns %v; upstream: %v", gvk, ok, wantErr)
			case !ok:
				failed++
			case string(got) != "before "+strings.TrimSuffix(want.String(), "\n"):
				t.Fatalf("%v:\n%s\nupstream:\n%s", gvk, got, want.String())
			default:
				encoded++
			}
			if !reflect.DeepEqual(o, before) {
				t.Fatalf("%v: Append changed the object", gvk)
			}
		}
	}
	if encoded < failed || failed == 0 {
		t.Errorf("%d encoded, %d failed: the random objects cover too little", encoded, failed)
	}
}

func sorted(types map[schema.GroupVersionKind]reflect.Type) (all []schema.GroupVersionKind) {
	for gvk := range types {
		if gvk.Version != runtime.APIVersionInternal {
			all = append(all, gvk)
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// filler fills Go values at random.
type filler struct {
	*rand.Rand
	broken bool // also with values that cannot be encoded
	left   int  // number of values that it may still fill
	empty  int  // one value of so many stays empty
}

func oneOf[T any](r *filler, all ...T) T { return all[r.IntN(len(all))] }

func (r *filler) fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *metav1.Time:
		*x = metav1.Time{Time: r.time()}
		return
	case *metav1.MicroTime:
		*x = metav1.MicroTime{Time: r.time()}
		return
	case *resource.Quantity:
		*x = r.quantity()
		return
	case *metav1.FieldsV1:
		*x = *metav1.NewFieldsV1(r.json(0))
		return
	case *runtime.RawExtension:
		x.Raw = []byte(r.json(0))
		return
	case *apiextensionsv1.JSON:
		x.Raw = []byte(r.json(0))
		return
	}
	if r.left--; r.left < 0 || r.IntN(r.empty) == 0 { // it stays empty or nil
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(oneOf(r, 1, -1, math.MaxInt64, math.MinInt64, 1<<53+1, int64(r.Uint64())) >> (64 - v.Type().Bits()))
		if v.Type().Name() == "Type" { // of IntOrString: 0 or 1
			v.SetInt(int64(r.IntN(2)))
			if r.broken {
				v.SetInt(2)
			}
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(oneOf(r, 0.1, -1e-9, 1e21, 1e20, math.MaxFloat32, 1<<24+1))
	case reflect.String:
		v.SetString(r.text())
	case reflect.Pointer:
		if depth < 20 {
			v.Set(reflect.New(v.Type().Elem()))
			r.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		n := r.IntN(3)
		if depth > 20 {
			n = 0
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			r.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			r.fill(key, depth+1)
			r.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				r.fill(v.Field(i), depth+1)
			}
		}
	}
}

func (r *filler) time() time.Time {
	return oneOf(r, time.Time{}, time.Unix(0, 0), time.Unix(1_790_000_000, 123456789), time.Date(12026, 1, 2, 3, 4, 5, 6,
		time.UTC),
		time.Date(-1, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 3, 4, 5, 999_999_999,
			time.FixedZone("", 5*3600+1800)))
}

func (r *filler) quantity() resource.Quantity {
	q := resource.MustParse(oneOf(r, "0", "1", "-1", "100m", "0.1", "1.5Gi", "1024", "1000", "1e3", "12E", "1E6", "3n",
		"0.00000000001", "-0.5", "999999999999999999999999999", "1.23456789Ki", "9223372036854775807", "8Ei"))
	switch r.IntN(3) {
	case 0:
		_ = q.String() // the quantity caches its text
	case 1:
		q.Add(resource.MustParse("1m"))
	}
	return q
}

var hostile = []string{
	"", "plain", "with space", `"quoted"`, `back\slash`, "<a href='x'>&amp;</a>", "\x00", "\x01\x1f\x7f", "\b\f\n\r\t",
	"\u2028 and \u2029",
	"\xff", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "é世界🎉", "\ufffd", "\ufeff", `{"json":[1,2]}`, `\u003c`,
	"tail \xe2\x80", "\xe2\x80\xa8\xe2\x80\xa9",
}

func (r *filler) text() string {
	switch r.IntN(4) {
	case 0:
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return string(b)
	case 1:
		return strings.Repeat("x", r.IntN(20)) + oneOf(r, hostile...) + strings.Repeat("y", r.IntN(20))
	}
	return oneOf(r, hostile...)
}

// json returns a field set, or any other value.
func (r *filler) json(depth int) string {
	if r.broken && r.IntN(8) == 0 {
		return oneOf(r, "{", "}", `{"a":{}`, `{"a":{}}}`, `{"a":{},}`, `{"a":{}}x`, `{"a"{}}`, `{"a":}`, `{a:{}}`,
			`{"a":{}"b":{}}`, `{"\x":{}}`, "{\"\n\":{}}", `{"a":{},"b"}`, `{"a":{}}{}`, `nul`, `"`, `{"\":{}}`, `{,"a":{}}`,
			`{"a":{}},`)
	}
	switch r.IntN(12) {
	case 0:
		return oneOf(r, "null", "true", "1", "-0", "1e400", "1.0", `"<&>"`, "\"\u2028\"", "\"\xff\"", "[]", "[ 1 , {} ]",
			`"\u003c\/"`)
	case 1:
		return " {\n}\t"
	}
	var b strings.Builder
	b.WriteString("{")
	for i := range r.IntN(4) {
		if i > 0 {
			b.WriteString(oneOf(r, ",", ",", ",", " ,\n"))
		}
		b.WriteString(oneOf(r, `"."`, `"f:spec"`, `"k:{\"name\":\"web\"}"`, `"f:a b"`, `"v:\"\\\""`, `"f:<x>"`,
			"\"f:\u2028\"", `"\u0041"`, `"f:\/"`, `""`, "\"\xff\"", `"é"`))
		b.WriteString(oneOf(r, ":", ":", ":", " : "))
		if depth > 4 {
			b.WriteString("{}")
		} else {
			b.WriteString(r.json(depth + 1))
		}
	}
	b.WriteString("}")
	return b.String()
}

// TestDeep encodes values at the depth that encoding/json accepts, and deeper.
func TestDeep(t *testing.T) {
	for _, depth := range []int{1, maxDepth, maxDepth + 1, 9_999, 10_000, 10_001} {
		raw := strings.Repeat(`{"f:a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			{FieldsV1: metav1.NewFieldsV1(raw)}}}}
		want, err := json.Marshal(o)
		if got, ok := Append(nil, o); ok != (err == nil) || ok && !bytes.Equal(got, want) {
			t.Errorf("depth %d: %v, %.40s; encoding/json: %v", depth, ok, got, err)
		}
	}
}

// TestOddTypes encodes Go types that the API does not have.
func TestOddTypes(t *testing.T) {
	x := 7
	for _, v := range []any{
		&struct {
			A int `json:"a"`
			b int
			C int `json:"-"`
			D int `json:",omitempty"`
			E int `json:"-,"` //lint:ignore SA5008 a field whose name is a dash
			F int
			G int    `json:"g,string"`
			H string `json:"h,omitempty,omitzero"`
		}{1, 2, 3, 0, 5, 6, 7, ""},
		&struct {
			Inner `json:",inline"`
			Name  string `json:"name"`
		}{Inner{"hidden", 1}, "shown"},
		&struct {
			*Inner
			Two int
		}{nil, 2},
		&struct{ Inner }{Inner{"in", 3}},
		&struct{ M map[string]pointerText }{map[string]pointerText{"a": {1}}},
		&struct{ M map[string][]pointerText }{map[string][]pointerText{"a": {{1}}}},
		&struct{ S []pointerText }{[]pointerText{{1}}},
		&struct{ M map[int]string }{map[int]string{10: "a", 9: "b"}},
		&struct{ M map[string]*int }{map[string]*int{"b": nil, "a": &x}},
		&struct{ N json.Number }{"12.5"},
		&struct{ N json.Number }{"no"},
		&struct{ A any }{map[string]any{"<": 1.5}},
		&struct{ B []byte }{[]byte("<>")},
		&struct{ B [2]bool }{},
		&struct{ R json.RawMessage }{json.RawMessage(" {} ")},
		&struct{ F float64 }{math.Inf(1)},
		&struct {
			A int8
			B uint16         `json:"b,omitempty"`
			C float64        `json:"c,omitempty"`
			D map[string]int `json:"d,omitempty"`
			E map[string]int `json:"e"`
			F [2]int         `json:"f,omitempty"`
			G any            `json:"g,omitempty"`
		}{-1, 2, math.Copysign(0, -1), map[string]int{}, map[string]int{"z": 1, "a": -2, "m": 3, "<": 4, "b": 5, "": 6},
			[2]int{}, nil},
		&struct{ F func() }{func() {}},
		&struct {
			Z pointerZero `json:"z,omitzero"`
			Y *valueZero  `json:"y,omitzero"`
			X valueZero   `json:"x,omitzero"`
			W Inner       `json:"w,omitzero"`
			V any         `json:"v,omitzero"`
			U [0]int      `json:"u,omitempty"`
			T Inner       `json:"t,omitempty"`
			S float64     `json:"s,omitempty"`
		}{Y: &valueZero{1}, X: valueZero{7}},
		&tree{Name: "a", Children: []*tree{{Name: "b"}, nil}},
	} {
		want, err := json.Marshal(v)
		got, gotErr := appenderOf(reflect.TypeOf(v).Elem())(nil, reflect.ValueOf(v).Elem())
		if (gotErr == nil) != (err == nil) || err == nil && string(got) != string(want) {
			t.Errorf("%T: %s, %v; encoding/json: %s, %v", v, got, gotErr, want, err)
		}
	}
}

type Inner struct {
	Name string `json:"name"`
	N    int
}

type tree struct {
	Name     string           `json:"name"`
	Children []*tree          `json:"children,omitempty"`
	Named    map[string]*tree `json:"named,omitempty"`
}

type pointerText struct{ N int }

func (p *pointerText) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "<%d>", p.N), nil }

type pointerZero struct{ N int }

func (p *pointerZero) IsZero() bool { return p.N == 0 }

type valueZero struct{ N int }

func (p valueZero) IsZero() bool { return p.N == 7 }

func FuzzString(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendString(nil, s); !bytes.Equal(got, want) {
			t.Errorf("%q: %s, encoding/json %s", s, got, want)
		}
	})
}

// FuzzFieldSet checks that encoding/json copies a set that isFieldSet accepts.
func FuzzFieldSet(f *testing.F) {
	for _, s := range []string{`{}`, `{"f:a":{}}`, `{"f:a":{".":{},"k:{\"name\":\"x\"}":{}},"b":{}}`, `{"a":{}}}`,
		`{"a":{},}`, "", "{", `{"a"`, `{"a":{}`, `{"a\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !isFieldSet([]byte(s)) {
			return
		}
		if want, err := json.Marshal(json.RawMessage(s)); err != nil || string(want) != s {
			t.Errorf("%q: encoding/json has %s, %v", s, want, err)
		}
	})
}

// TestMessagesAsDecoded encodes the messages of random objects of every kind, and messages with random errors, and
// compares the JSON with that of the decoded objects.
func TestMessagesAsDecoded(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	r := &filler{Rand: rand.New(rand.NewPCG(*seed, 2))}
	encoded, decoded, damaged := 0, 0, 0
	for _, gvk := range sorted(scheme.Scheme.AllKnownTypes()) {
		for range *objects {
			o, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			m, ok := o.(message)
			if !ok {
				break
			}
			r.left, r.empty = 3000, oneOf(r, 2, 4, 8)
			r.fill(reflect.ValueOf(o).Elem(), 0)
			b, err := m.Marshal()
			if err != nil {
				continue // a time that protobuf does not have
			}
			if compareMessage(t, m, b) {
				encoded++
			} else {
				decoded++
			}
			for range 20 {
				if compareMessage(t, m, r.damage(b)) {
					damaged++
				}
			}
		}
	}
	t.Log(encoded, decoded, damaged)
	if encoded < decoded || decoded == 0 || damaged == 0 {
		t.Errorf("%d encoded, %d decoded, %d encoded with errors: the random messages cover too little", encoded, decoded,
			damaged)
	}
}

// damage returns a message with an error: a bit is flipped, or a part is missing, repeated or moved.
func (r *filler) damage(m []byte) []byte {
	if len(m) == 0 {
		return []byte{byte(r.Uint32())}
	}
	from, to := r.IntN(len(m)), r.IntN(len(m)+1)
	if from > to {
		from, to = to, from
	}
	part := m[from:to]
	switch r.IntN(5) {
	case 0:
		m = slices.Clone(m)
		m[from] ^= 1 << r.IntN(8)
		return m
	case 1:
		return m[:to]
	case 2:
		return slices.Concat(m[:from], m[to:])
	case 3:
		return slices.Concat(m[:to], part, m[to:])
	}
	return slices.Concat(m, m)
}

// TestCutNumber encodes messages with an int32 of more bits, of which decoding keeps the lowest.
func TestCutNumber(t *testing.T) {
	for _, n := range []uint64{1 << 31, 1 << 32, 1<<32 + 1, 1 << 63, math.MaxUint64} {
		spec := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), n) // minReadySeconds
		deployment := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), spec)
		if !compareMessage(t, &appsv1.Deployment{}, deployment) {
			t.Errorf("a message with %d is not encoded", n)
		}
	}
}

type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// compareMessage reports whether AppendMessage encodes a message of a type. Its JSON must be that of the
// decoded message.
func compareMessage(t *testing.T, example message, b []byte) bool {
	t.Helper()
	typ := reflect.TypeOf(example).Elem()
	got, ok := AppendMessage([]byte("before "), typ, b)
	if !ok {
		return false
	}
	o := reflect.New(typ)
	if err := o.Interface().(message).Unmarshal(b); err != nil {
		t.Errorf("%v: a message that cannot be decoded is encoded: %v\n%x\n%s", typ, err, b, got)
		return true
	}
	want, err := json.Marshal(o.Interface())
	if got = got[len("before "):]; err != nil || string(got) != string(want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf("%v at %d: %.80s; encoding/json: %.80s, %v\n%x", typ, at, got[max(0, at-40):], want[max(0, at-40):], err, b)
	}
	return true
}

func FuzzMessage(f *testing.F) {
	pod := &corev1.Pod{}
	r := &filler{Rand: rand.New(rand.NewPCG(1, 2)), left: 500, empty: 4}
	r.fill(reflect.ValueOf(pod).Elem(), 0)
	if b, err := pod.Marshal(); err == nil {
		f.Add(b)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) { compareMessage(t, pod, b) })
}

// TestFieldsOfMessages encodes messages that have one field each, for every field of every type in the messages of all
// kinds.
func TestFieldsOfMessages(t *testing.T) {
	r := &filler{Rand: rand.New(rand.NewPCG(1, 2)), empty: math.MaxInt}
	seen := map[reflect.Type]bool{}
	var visit func(typ reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
			typ = typ.Elem()
		}
		example, isMessage := reflect.New(typ).Interface().(message)
		if typ.Kind() != reflect.Struct || seen[typ] || !isMessage || isDecoded(typ) {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			if fieldNumber(f.Tag.Get("protobuf")) == 0 {
				continue
			}
			visit(f.Type)
			encoded := false
			for range 20 { // random maps are unordered, and random times may not exist
				o := reflect.New(typ)
				r.left = 20
				r.fill(o.Elem().FieldByIndex(f.Index), 0)
				b, err := o.Interface().(message).Marshal()
				encoded = encoded || err == nil && len(b) > 0 && compareMessage(t, example, b)
			}
			if !encoded {
				t.Errorf("%v with %s alone is decoded", typ, f.Name)
			}
		}
	}
	for _, typ := range scheme.Scheme.AllKnownTypes() {
		visit(typ)
	}
	t.Logf("%d types", len(seen))
}
