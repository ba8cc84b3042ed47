package proxy

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

const (
	inJSON     = "application/json"
	inProtobuf = "application/vnd.kubernetes.protobuf"
	asList     = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	asObject   = ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

	pods    = "/api/v1/namespaces/default/pods"
	widgets = "/apis/example.com/v1/namespaces/default/widgets"
)

var widgetsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// define creates the custom resource widgets, whose fields no Go type knows, and lets the reader read it. It is served
// on return.
func (r *rig) define() {
	r.Helper()
	client, err := apiextensions.NewForConfig(r.server.Config())
	r.must(err)
	preserve := true
	_, err = client.ApiextensionsV1().CustomResourceDefinitions().Create(r.Context(),
		&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
					Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object",
						XPreserveUnknownFields: &preserve}},
				}},
			},
		}, metav1.CreateOptions{})
	r.must(err)
	_, err = r.admin.RbacV1().Roles("default").Patch(r.Context(), "reader", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/rules/-","value":{"apiGroups":["example.com"],"resources":["widgets"],"verbs":["get","list","watch"]}}]`), metav1.PatchOptions{})
	r.must(err)
	widgetClient, err := dynamic.NewForConfig(r.server.Config())
	r.must(err)
	r.eventually("widgets are served", func() bool {
		_, err := widgetClient.Resource(widgetsResource).List(r.Context(), metav1.ListOptions{})
		return err == nil
	})
}

// fill creates objects of three resources: some with all kinds of metadata.
func (r *rig) fill() {
	r.Helper()
	ctx := r.Context()
	r.create(20)
	widgetClient, err := dynamic.NewForConfig(r.server.Config())
	r.must(err)
	for i := range 10 {
		meta := metav1.ObjectMeta{
			Name: fmt.Sprintf("object-%02d", i), Labels: map[string]string{"half": fmt.Sprint(i % 2)},
			Annotations: map[string]string{"<b>": "&\u2028\x01", "z": "", "empty": ""},
			Finalizers:  []string{"example.com/one", "example.com/two"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: "map-000", UID: "none", Controller: new(i%2 == 0),
				BlockOwnerDeletion: new(bool),
			}},
		}
		if i < 5 {
			meta.Annotations, meta.OwnerReferences, meta.Finalizers = nil, nil, nil
		} else {
			delete(meta.Annotations, "<b>")
			meta.Annotations["b"] = "<b>&\u2028"
		}
		_, err := r.admin.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
			ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%3), HostNetwork: i%4 == 0,
				Containers: []corev1.Container{{Name: "c", Image: "image"}}},
		}, metav1.CreateOptions{})
		r.must(err)
		widget := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"<b>": []any{int64(1), 2.5, nil, true, "&"},
				"metadata": map[string]any{"resourceVersion": "1"}},
		}}
		widget.SetName(meta.Name)
		widget.SetLabels(meta.Labels)
		widget.SetAnnotations(meta.Annotations)
		widget.SetFinalizers(meta.Finalizers)
		widget.SetOwnerReferences(meta.OwnerReferences)
		_, err = widgetClient.Resource(widgetsResource).Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
		r.must(err)
	}
}

// In both encodings, whole or metadata alone, the proxy's bytes are the server's: of lists, single objects and watches,
// with the bookmarks that end streaming lists.
func TestEncodingsAreTheServers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.define()
	r.fill()
	r.compareEncodings()
}

// compareEncodings compares reads of what fill has created.
func (r *rig) compareEncodings() {
	r.Helper()
	for _, c := range []struct {
		path, object, change string
		accept               []string
	}{
		{maps, "map-003", `{"data":{"a":"b%d"}}`, []string{inJSON, inProtobuf}},
		{pods, "object-07", `{"metadata":{"labels":{"new":"%d"}}}`, []string{inJSON, inProtobuf}},
		{widgets, "object-07", `{"spec":{"a":"<b>%d"}}`, []string{inJSON, inProtobuf + "," + inJSON}},
	} {
		accept := c.accept
		accept = append(accept, inProtobuf+asList+","+inJSON+asList, inJSON+asList)
		for _, accept := range accept {
			r.waitCachedAs(c.path+"?resourceVersion=0", accept)
			r.sameBytes(c.path+"?resourceVersion=0", accept)
			for _, query := range []string{"?labelSelector=half%3D1&resourceVersion=0", "?fieldSelector=metadata.name%3D" +
				c.object + "&resourceVersion=0", "?labelSelector=none&resourceVersion=0"} {
				r.sameBytes(c.path+query, accept)
			}
			if c.path == pods {
				for _, field := range []string{"spec.nodeName%3Dnode-1", "spec.nodeName%21%3Dnode-1", "spec.hostNetwork%3Dtrue",
					"status.phase%3DPending,spec.hostNetwork%3Dfalse", "spec.schedulerName%3Ddefault-scheduler"} {
					r.sameBytes(c.path+"?resourceVersion=0&fieldSelector="+field, accept)
				}
			}
		}
		accept = append(c.accept, inProtobuf+asObject+","+inJSON+asObject, inJSON+asObject)
		for i, accept := range accept {
			r.sameBytes(c.path+"/"+c.object+"?resourceVersion=0", accept)
			r.sameWatch(c.path, c.object, fmt.Sprintf(c.change, i), accept)
		}
	}
}

// sameBytes sends a request to both sides until the responses are the same: at revision 0 the proxy, which follows each
// encoding by itself, may be behind for a moment, and by a write to another resource until the next bookmark, which
// comes once a minute. The proxy must answer from memory.
func (r *rig) sameBytes(path, accept string, header ...string) answer {
	r.Helper()
	header = append(header, "Accept", accept)
	var got, want answer
	await.State(r, path+" as "+accept+" is the server's", func() (bool, string) {
		before := r.answered()
		got = r.proxy(path, header...)
		if r.answered() == before {
			r.Errorf("%s as %s is not answered from a cache", path, accept)
		}
		want = r.behind(path, header...)
		return got.code == want.code && got.body == want.body &&
				got.header.Get("Content-Type") == want.header.Get("Content-Type"),
			fmt.Sprintf("%d %s %.400q\nthe server: %d %s %.400q", got.code, got.header.Get("Content-Type"), got.body,
				want.code, want.header.Get("Content-Type"), want.body)
	})
	if want.code != http.StatusOK {
		r.Errorf("%s as %s: the server answers %d %s", path, accept, want.code, want.body)
	}
	return got
}

// waitCachedAs is waitCached in an encoding.
func (r *rig) waitCachedAs(path, accept string, header ...string) {
	r.Helper()
	r.eventually(fmt.Sprint(path, " is answered from a cache as ", accept, header), func() bool {
		before := r.answered()
		r.proxy(path, append(header, "Accept", accept)...)
		return r.answered() > before
	})
}

// sameWatch compares the streaming lists of both sides, and the events of changes after them: an object leaves the
// selection and enters it again.
func (r *rig) sameWatch(path, object, change, accept string) {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	query := path +
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=0&labelSelector=half%3D1"
	var frames [2]<-chan string
	for i, side := range []struct {
		client *http.Client
		host   string
	}{{r.proxied, r.url}, {r.direct, r.host}} {
		before := r.answered()
		response := r.open(ctx, side.client, side.host, query, "Accept", accept)
		if i == 0 && r.answered() == before {
			r.Errorf("a watch of %s as %s is not answered from a cache", path, accept)
		}
		defer response.Body.Close()
		frames[i] = framesOf(response)
	}
	initial := 0
	for ended := false; !ended; initial++ {
		got, want := r.next(frames[0]), r.next(frames[1])
		if ended = isBookmark(got); ended { // the two may have reached another revision
			got, want = number.ReplaceAllString(got, "*"), number.ReplaceAllString(want, "*")
		}
		if got != want {
			r.Errorf("%s as %s, event %d: %.500q\nthe server: %.500q", path, accept, initial, got, want)
		}
	}
	if initial < 5 {
		r.Errorf("%s as %s: %d initial events", path, accept, initial)
	}
	for _, patch := range []string{change, `{"metadata":{"labels":{"half":"0"}}}`,
		`{"metadata":{"labels":{"half":"1"}}}`} {
		r.patch(path, object, patch)
	}
	for i := range 3 {
		if got, want := r.nextChange(frames[0]), r.nextChange(frames[1]); got != want {
			r.Errorf("%s as %s, change %d: %.500q\nthe server: %.500q", path, accept, i, got, want)
		}
	}
}

// patch changes an object at the server.
func (r *rig) patch(path, object, body string) {
	r.Helper()
	err := r.admin.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path,
		object).Body([]byte(body)).Do(r.Context()).Error()
	r.must(err)
}

func isBookmark(frame string) bool {
	return len(frame) < 2000 && strings.Contains(frame, "initial-events-end")
}

var number = regexp.MustCompile(`\d+`)

// next returns the next frame of a watch.
func (r *rig) next(frames <-chan string) string {
	r.Helper()
	select {
	case frame, open := <-frames:
		if !open {
			r.Fatal("the watch has ended")
		}
		return frame
	case <-time.After(await.Deadline):
		r.Fatal("no event")
		return ""
	}
}

// nextChange returns the next frame that is no bookmark: each side sends these in its own time.
func (r *rig) nextChange(frames <-chan string) string {
	r.Helper()
	for {
		if frame := r.next(frames); !strings.Contains(frame, "BOOKMARK") {
			return frame
		}
	}
}

// framesOf reads the frames of a watch. It closes the channel at its end.
func framesOf(response *http.Response) <-chan string {
	frames := make(chan string, 1000)
	go func() {
		defer close(frames)
		body := bufio.NewReader(response.Body)
		for {
			frame, err := readFrame(body, response.Header.Get("Content-Type"))
			if err != nil {
				return
			}
			frames <- frame
		}
	}()
	return frames
}

func readFrame(body *bufio.Reader, media string) (string, error) {
	if strings.Contains(media, "json") {
		return body.ReadString('\n')
	}
	var size [4]byte
	if _, err := io.ReadFull(body, size[:]); err != nil {
		return "", err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(body, frame)
	return string(size[:]) + string(frame), err
}
