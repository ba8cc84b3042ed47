package readpath

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

const asList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// accepted returns the Accept header for an encoding.
func accepted(f encoding, as string) string {
	switch {
	case isMetadata(f):
		return mediaType(f) + as
	case f == tableJSON:
		return asTable
	}
	return mediaType(f)
}

// expected returns a list as an API server encodes it.
func (r *rig) expected(namespace string, p apistorage.SelectionPredicate, f encoding) []byte {
	r.t.Helper()
	list := r.kind.newList()
	key := "/" + r.kind.resource.Resource
	if namespace != "" {
		key += "/" + namespace
	}
	must(0, r.storage.GetList(r.t.Context(), key, apistorage.ListOptions{Predicate: p, Recursive: true}, list))(r.t)
	t := r.t.(*testing.T)
	if f == tableJSON {
		return expectedTable(t, list, true, tableForms[0], r.kind)
	}
	if !isMetadata(f) {
		if r.kind.dynamic {
			list.GetObjectKind().SetGroupVersionKind(r.reader.resource.kindOfList(f))
			return must(runtime.Encode(unstructured.UnstructuredJSONScheme, list))(t)
		}
		return encoded(t, list, r.kind.gvk.GroupVersion(), f)
	}
	about := must(meta.ListAccessor(list))(t)
	small := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
		ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue(),
		RemainingItemCount: about.GetRemainingItemCount(),
	}}
	must(0, meta.EachListItem(list, func(o runtime.Object) error {
		small.Items = append(small.Items, *partial(t, o))
		return nil
	}))(t)
	return encoded(t, small, r.kind.gvk.GroupVersion(), f)
}

func unzipped(t testing.TB, answer *http.Response, body []byte) []byte {
	t.Helper()
	if answer.Header.Get("Content-Encoding") != "gzip" {
		return body
	}
	rest := bytes.NewReader(body)
	z := must(gzip.NewReader(rest))(t)
	z.Multistream(false)
	plain := must(io.ReadAll(z))(t)
	if rest.Len() > 0 {
		t.Errorf("%d bytes follow the gzip member", rest.Len())
	}
	return plain
}

// Lists equal an API server's of the same storage, in all encodings, compressed or not, small or large,
// with and without selectors. They have a Content-Length wherever it is known.
func TestLists(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			testLists(t, r, false)
			// half of the objects is more than gzipFrom in every encoding
			note := strings.Repeat("<é>", 20) + strings.Repeat("x", 850)
			for i := range 300 {
				r.create("large", fmt.Sprint("o", i), withLabel("tier", fmt.Sprint(i%2)), withNote(fmt.Sprint(i, note)))
			}
			r.create("other", "o1", withLabel("tier", "0"))
			testLists(t, r, true)
		})
	}
}

func testLists(t *testing.T, r *rig, large bool) {
	everything := predicate(labels.Everything(), fields.Everything())
	for _, f := range append(allEncodings, tableJSON) {
		if r.kind.dynamic && f == objectProtobuf {
			continue // custom resources have none
		}
		for query, test := range map[string]struct {
			namespace string
			p         apistorage.SelectionPredicate
		}{
			"":                   {"", everything},
			"?resourceVersion=0": {"", everything},
			"?labelSelector=tier%3D0": {"", predicate(labels.SelectorFromSet(labels.Set{"tier": "0"}),
				fields.Everything())},
			"?labelSelector=tier%3Dnone": {"", predicate(labels.SelectorFromSet(labels.Set{"tier": "none"}),
				fields.Everything())},
			"?fieldSelector=metadata.name%3Do1": {"", predicate(labels.Everything(), fields.OneTermEqualSelector("metadata.name",
				"o1"))},
			"?fieldSelector=metadata.namespace%3Dlarge": {"large", everything},
			"?limit=100000": {"", everything},
		} {
			want := r.expected(test.namespace, test.p, f)
			for _, encoding := range []string{"identity", "gzip"} {
				for range 2 { // without and with cached encodings
					answer, body := r.get(r.path("")+query, accept(accepted(f, asList), "Accept-Encoding", encoding))
					what := fmt.Sprint(query, " in encoding ", f, ", ", encoding)
					packed := answer.Header.Get("Content-Encoding") == "gzip"
					if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != mediaType(f) ||
						packed != (encoding == "gzip" && len(want) > gzipFrom) {
						t.Errorf("%s: %s, %v", what, answer.Status, answer.Header)
					}
					if length := answer.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
						t.Errorf("%s: Content-Length is %s, and the body has %d bytes", what, length, len(body))
					} else if length == "" && isProtobuf(f) && !packed {
						t.Errorf("%s: no Content-Length", what)
					}
					expectBytes(t, what, unzipped(t, answer, body), want)
				}
			}
		}
	}
	if delegated := r.delegated.Load(); delegated > 0 {
		t.Errorf("%d lists were delegated", delegated)
	}
	if answer, _ := r.get(r.path("large"), accept("application/json")); large && answer.ContentLength < gzipFrom {
		t.Errorf("Content-Length of a large list whose encodings are all cached is %d", answer.ContentLength)
	}
}

// The pages of a list together are the list.
func TestPages(t *testing.T) {
	r := newRig(t, pods, options{})
	for i := range 200 {
		r.create(fmt.Sprint("n", i%3), fmt.Sprint("o", i), withLabel("tier", fmt.Sprint(i%2)))
	}
	for query, want := range map[string]int{"": 200, "&labelSelector=tier%3D0": 100} {
		var names []string
		token, pages := "", 0
		for more := true; more; pages++ {
			_, body := r.get(r.path("")+"?limit=7"+query+"&continue="+token, accept("application/json"))
			var list metav1.PartialObjectMetadataList
			must(0, json.Unmarshal(body, &list))(t)
			for _, o := range list.Items {
				names = append(names, o.Namespace+"/"+o.Name)
			}
			token, more = list.Continue, list.Continue != ""
			switch left := list.RemainingItemCount; {
			case query != "" && left != nil:
				t.Errorf("a page with a selector says that %d remain", *left)
			case query == "" && more && (left == nil || int(*left) != want-len(names)):
				t.Errorf("after %d objects %v remain", len(names), left)
			}
		}
		if len(names) != want || pages != (want+6)/7 {
			t.Errorf("%d objects on %d pages", len(names), pages)
		}
	}
}

// The buffers of a list are released when its client disconnects.
func TestDisconnectedClients(t *testing.T) {
	budget := NewBudget(1 << 30)
	r := newRig(t, pods, options{budget: budget})
	big := withNote(string(bytes.Repeat([]byte("0123456789abcdef"), 4<<10)))
	for i := range 200 { // 13 MB, more than any buffer on the way
		r.create("default", fmt.Sprint("o", i), big)
	}
	for _, encoding := range []string{"identity", "gzip"} {
		for range 5 {
			conn := must(net.Dial("tcp", r.server().Listener.Addr().String()))(t)
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nAccept-Encoding: %s\r\n\r\n",
				r.path(""), encoding)
			must(io.ReadFull(conn, make([]byte, 1000)))(t)
			conn.Close()
		}
	}
	await.True(t, "all buffers are free", func() bool { return budget.lists.inUse() == 0 })
}

// A large list that is not admitted is answered 429 with Retry-After.
func TestListsThatAreNotAdmitted(t *testing.T) {
	budget := NewBudget(1 << 30)
	budget.lists = newAdmission(listBufferSize)
	r := newRig(t, pods, options{budget: budget})
	for i := range 300 {
		r.create("default", fmt.Sprint("o", i), withNote(string(bytes.Repeat([]byte("x"), 1000))))
	}
	release := must(budget.lists.acquire(t.Context(), "", listBufferSize))(t)
	budget.lists.waiting = queueLength // a full queue
	r.context = func(ctx context.Context) context.Context { return request.WithUser(ctx, &user.DefaultInfo{Name: "a"}) }
	answer, body := r.get(r.path(""), accept("application/json"))
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("%s, retry after %q: %s", answer.Status, answer.Header.Get("Retry-After"), body)
	}
	if answer, _ := r.get(r.path("")+"?limit=1", accept("application/json")); answer.StatusCode != http.StatusOK {
		t.Errorf("a small list: %s", answer.Status)
	}
	budget.lists.waiting = 0
	release()
	if answer, _ := r.get(r.path(""), accept("application/json")); answer.StatusCode != http.StatusOK {
		t.Errorf("when buffers are free: %s", answer.Status)
	}
}

// Lists during writes each show one state.
func TestListsWhileWriting(t *testing.T) {
	r := newRig(t, pods, options{budget: NewBudget(64 << 10)}) // so that encodings are dropped
	for i := range 100 {
		r.create("default", fmt.Sprint("o", i), withNote(string(bytes.Repeat([]byte("x"), 2000))))
	}
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			r.update("default", fmt.Sprint("o", i%100), withNote(fmt.Sprint(i, string(bytes.Repeat([]byte("y"), i%4000)))))
		}
	}()
	defer func() { cancel(); <-written }()
	for i := range 60 {
		f := allEncodings[i%len(allEncodings)]
		encoding := []string{"identity", "gzip"}[i/4%2]
		answer, body := r.get(r.path(""), accept(accepted(f, asList), "Accept-Encoding", encoding))
		checkState(t, unzipped(t, answer, body), f)
	}
}

// checkState fails the test unless a list has 100 objects, none newer than the list.
func checkState(t *testing.T, body []byte, f encoding) {
	t.Helper()
	list := must(runtime.Decode(decoderOf(f), body))(t)
	about := must(meta.ListAccessor(list))(t)
	newest := must(strconv.Atoi(about.GetResourceVersion()))(t)
	objects := must(meta.ExtractList(list))(t)
	if len(objects) != 100 {
		t.Errorf("%d objects", len(objects))
	}
	for _, o := range objects {
		m := must(meta.Accessor(o))(t)
		if revision := must(strconv.Atoi(m.GetResourceVersion()))(t); revision > newest {
			t.Errorf("%s has revision %d, the list %d", m.GetName(), revision, newest)
		}
	}
}

// decoderOf returns the decoder of an encoding.
func decoderOf(f encoding) runtime.Decoder {
	if isMetadata(f) {
		return metainternalversionscheme.Codecs.UniversalDeserializer()
	}
	return scheme.Codecs.UniversalDeserializer()
}

// A list is compressed if it is larger than 128 KiB, with its head and tail.
func TestListsAreCompressedFrom128KiB(t *testing.T) {
	for _, media := range []string{"application/json", asTable} {
		r := newRig(t, pods, options{})
		r.waitFor(r.create("default", "o1", withNote("")))
		_, body := r.get(r.path(""), accept(media))
		for _, length := range []int{gzipFrom, gzipFrom + 1} {
			r.waitFor(r.update("default", "o1", withNote(strings.Repeat("x", length-len(body)))))
			answer, got := r.get(r.path(""), accept(media, "Accept-Encoding", "gzip"))
			n := len(unzipped(t, answer, got)) // the length changes if revisions have one more digit
			if packed := answer.Header.Get("Content-Encoding") == "gzip"; packed != (n > gzipFrom) {
				t.Errorf("%s: %d bytes are compressed: %v", media, n, packed)
			}
		}
	}
}

// Whoever receives indented JSON receives what an API server's serializer makes of the same list or object.
func TestIndented(t *testing.T) {
	for _, k := range []kind{pods, statefulSets, widgets} {
		t.Run(k.resource.Resource, func(t *testing.T) {
			r := newRig(t, k, options{})
			testIndented(t, r)
			note := strings.Repeat("<é>\"\\{", 20) + strings.Repeat("x", 850)
			for i := range 200 {
				r.create("large", fmt.Sprint("o", i), withLabel("tier", fmt.Sprint(i%2)), withNote(fmt.Sprint(i, note)))
			}
			testIndented(t, r)
		})
	}
}

func testIndented(t *testing.T, r *rig) {
	indented := func(compact []byte) []byte {
		var b bytes.Buffer
		must(0, json.Indent(&b, bytes.TrimSuffix(compact, newline), "", "  "))(t)
		return b.Bytes()
	}
	_, one := r.get(r.path("large")+"/o1?pretty=false", accept("application/json"))
	for _, f := range []encoding{objectJSON, metadataJSON} {
		for query, p := range map[string]apistorage.SelectionPredicate{
			"?resourceVersion=0":      predicate(labels.Everything(), fields.Everything()),
			"?labelSelector=tier%3D0": predicate(labels.SelectorFromSet(labels.Set{"tier": "0"}), fields.Everything()),
		} {
			want := indented(r.expected("", p, f))
			for name, header := range map[string]http.Header{
				"a parameter":         accept(accepted(f, asList)),
				"a parameter, gzip":   accept(accepted(f, asList), "Accept-Encoding", "gzip"),
				"a media type":        accept(accepted(f, asList) + ";pretty=1"),
				"curl":                accept(accepted(f, asList), "User-Agent", "curl/8.5.0"),
				"a browser with gzip": accept(accepted(f, asList), "User-Agent", "Mozilla/5.0 (X11)", "Accept-Encoding", "gzip"),
			} {
				path := r.path("") + query
				if strings.HasPrefix(name, "a parameter") {
					path += "&pretty=true"
				}
				for range 2 { // without and with cached encodings
					answer, body := r.get(path, header)
					what := fmt.Sprint(query, " in encoding ", f, ", ", name)
					if length := answer.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(body)) {
						t.Errorf("%s: Content-Length is %s, and the body has %d bytes", what, length, len(body))
					}
					if packed := answer.Header.Get("Content-Encoding") == "gzip"; packed != (strings.Contains(name, "gzip") &&
						len(want) > gzipFrom) {
						t.Errorf("%s: %v", what, answer.Header)
					}
					expectBytes(t, what, unzipped(t, answer, body), want)
				}
			}
		}
	}
	if len(one) > 0 && bytes.Contains(one, []byte(`"o1"`)) {
		_, body := r.get(r.path("large")+"/o1?pretty=1", accept("application/json"))
		expectBytes(t, "one object", body, indented(one))
	}
	if delegated := r.delegated.Load(); delegated > 0 {
		t.Errorf("%d requests were delegated", delegated)
	}
}
