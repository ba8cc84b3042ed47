// Children shows an operator that creates other objects. They are deleted with their
// owner, and created again if they are deleted before.
package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	metav1apply "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/operator"
	"github.com/keepwatch/keepwatch/operator/manager"
)

type Widget struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size int `json:"size"`
	} `json:"spec"`
}

// parent makes ConfigMaps of widgets.
type parent struct {
	client   kubernetes.Interface
	children *operator.Lookup[string, string] // the names of ConfigMaps, by their owner
}

func (p *parent) start(ctx context.Context, cfg *rest.Config) (err error) {
	p.client, err = kubernetes.NewForConfig(cfg)
	return err
}

// adopt creates or updates the child: a handler may be called again for the same change.
func (p *parent) adopt(ctx context.Context, r *operator.Request[*Widget]) error {
	owner := r.OwnerReference()
	child := corev1apply.ConfigMap(r.Object.Name, r.Object.Namespace).
		WithOwnerReferences(metav1apply.OwnerReference().WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).
			WithName(owner.Name).WithUID(owner.UID).WithController(true).WithBlockOwnerDeletion(true)).
		WithData(map[string]string{"size": fmt.Sprint(r.Object.Spec.Size)})
	made, err := p.client.CoreV1().ConfigMaps(r.Object.Namespace).Apply(ctx, child,
		metav1.ApplyOptions{FieldManager: "children", Force: true})
	if err != nil {
		return err
	}
	r.Patch.Status("child", made.Name)
	return nil
}

// check creates a child again that was deleted.
func (p *parent) check(ctx context.Context, r *operator.Request[*Widget]) error {
	if len(p.children.Get(string(r.Object.UID))) > 0 {
		return nil
	}
	r.Logger.Info("the child was lost")
	return p.adopt(ctx, r)
}

func owned(m *corev1.ConfigMap) map[string]string {
	owner := metav1.GetControllerOf(m)
	if owner == nil || owner.Kind != "Widget" {
		return nil
	}
	return map[string]string{string(owner.UID): m.Name}
}

func main() {
	widgets, maps := operator.New("widgets.example.com"), operator.New("configmaps")
	p := &parent{children: operator.Index(maps, owned)}
	operator.OnStart(widgets, p.start)
	operator.OnCreate(widgets, p.adopt, operator.Backoff(5*time.Second))
	operator.OnField(widgets, "spec.size", p.adopt, operator.Backoff(5*time.Second))
	operator.Timer(widgets, 2*time.Second, p.check, operator.InitialDelay(2*time.Second))
	manager.Main(widgets, maps)
}
