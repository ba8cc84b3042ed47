package rawwatch

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/keepwatch/keepwatch/internal/eventframes"
)

// statusOf reads the object of an ERROR event.
func statusOf(f eventframes.Frame) (*metav1.Status, error) {
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), f.Object)
	if err != nil {
		return nil, err
	}
	status, ok := decoded.(*metav1.Status)
	if !ok {
		return nil, fmt.Errorf("an ERROR event with a %T", decoded)
	}
	return status, nil
}
