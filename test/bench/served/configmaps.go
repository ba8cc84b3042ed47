package served

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// WriteConfigMaps puts n config maps into etcd, under the keys and in the encoding
// that kube-apiserver uses, all in the namespace default.
func WriteConfigMaps(ctx context.Context, etcd *clientv3.Client, n int) error {
	return writeConfigMaps(ctx, etcd, 0, n, configMap)
}

// writeConfigMaps puts the config maps [from, to) into etcd.
func writeConfigMaps(ctx context.Context, etcd *clientv3.Client, from, to int,
	configMap func(int) *corev1.ConfigMap) error {
	const perWrite = 100 // etcd accepts 128 operations
	for i := from; i < to; i += perWrite {
		var puts []clientv3.Op
		for j := i; j < min(i+perWrite, to); j++ {
			key, value, err := encoded(configMap(j))
			if err != nil {
				return err
			}
			puts = append(puts, clientv3.OpPut(key, value))
		}
		if _, err := etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns the key and the value of a config map in etcd.
func encoded(c *corev1.ConfigMap) (key, value string, err error) {
	text, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), c)
	return "/registry/configmaps/" + c.Namespace + "/" + c.Name, string(text), err
}

// configMap is about 1.4 KB of JSON.
func configMap(i int) *corev1.ConfigMap {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	c := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("settings-%05d", i), CreationTimestamp: now,
			UID:    types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", i)),
			Labels: map[string]string{"app": fmt.Sprintf("web-%d", i%97), "app.kubernetes.io/managed-by": "deployer"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "deployer", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
				FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(
					`{"f:data":{".":{},"f:settings.yaml":{}},"f:metadata":{"f:labels":{".":{},"f:app":{},"f:app.kubernetes.io/managed-by":{}}}}`),
			}},
		},
	}
	var settings strings.Builder
	for line := range 20 {
		fmt.Fprintf(&settings, "section-%02d: value-%05d-%06x\n", line, i, (i+1)*(line+1)*7919)
	}
	c.Data = map[string]string{"settings.yaml": settings.String()}
	return c
}
