package watchcache_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/server/watchcache"
)

// internalPod is a pod as a server has it in memory.
type internalPod struct{ corev1.Pod }

func (p *internalPod) DeepCopyObject() runtime.Object { return &internalPod{*p.DeepCopy()} }

// internalCodec encodes and decodes internal pods.
type internalCodec struct{}

func (internalCodec) Identifier() runtime.Identifier { return "internal" }

func (internalCodec) Encode(o runtime.Object, w io.Writer) error {
	value, err := storedPod("v1", &o.(*internalPod).Pod)
	if err == nil {
		_, err = w.Write(value)
	}
	return err
}

func (internalCodec) Decode(value []byte, _ *schema.GroupVersionKind,
	_ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(bytes.TrimPrefix(value, []byte("k8s\x00"))); err != nil {
		return nil, nil, err
	}
	o, kind := &internalPod{}, envelope.GroupVersionKind()
	return o, &kind, o.Unmarshal(envelope.Raw)
}

// storedPod returns a pod as etcd has it.
func storedPod(version string, pod *corev1.Pod) ([]byte, error) {
	raw, err := pod.Marshal()
	if err != nil {
		return nil, err
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: "Pod"}, Raw: raw}
	b, err := envelope.Marshal()
	return append([]byte("k8s\x00"), b...), err
}

var errNotServed = errors.New("not in this version")

// servedPods is version v1 of internal pods. A pod with the host name "internal" cannot be served.
var servedPods = &watchcache.Version{
	GroupVersion: corev1.SchemeGroupVersion,
	New:          func() runtime.Object { return &corev1.Pod{} },
	To: func(o runtime.Object) (runtime.Object, error) {
		p := o.(*internalPod).Pod
		if p.Spec.Hostname == "internal" {
			return nil, errNotServed
		}
		return &p, nil
	},
	From: func(o runtime.Object) (runtime.Object, error) { return &internalPod{*o.(*corev1.Pod)}, nil },
}

// TestServedVersionIsCached: an object of an internal type is stored as the served version's message, if the
// source has it in this version and it can be converted.
func TestServedVersionIsCached(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		version, hostname string
		cached            bool
	}{
		"served version":      {"v1", "a", true},
		"another version":     {"v0", "a", false},
		"cannot be converted": {"v1", "internal", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config()
			c.Codec, c.NewFunc, c.Served = internalCodec{}, func() runtime.Object { return &internalPod{} }, servedPods
			r := cacheOf(t, c)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
				Spec: corev1.PodSpec{Hostname: test.hostname}}
			value, err := storedPod(test.version, pod)
			if err != nil {
				t.Fatal(err)
			}
			r.source.write("a", value)
			r.start()
			r.eventually("the cache is ready", func() bool { return r.ReadinessCheck() == nil })
			o, _ := r.Snapshot().Get(keepwatch.Key{Namespace: "ns", Name: "a"})
			cached, err := r.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			pod.ResourceVersion = o.Revision().String()
			want, err := pod.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if !test.cached {
				want = nil
			}
			if cached.Protobuf() != test.cached || !bytes.Equal(cached.Bytes(), want) {
				t.Errorf("cached is %q, want %q", cached.Bytes(), want)
			}
			decoded, err := cached.Decoded()
			if got, ok := decoded.(*internalPod); err != nil || !ok || got.Spec.Hostname != test.hostname ||
				got.ResourceVersion != pod.ResourceVersion {
				t.Errorf("decoded is %v, %v", decoded, err)
			}
		})
	}
}
