// Command kubeadm is Kubernetes' command to set up clusters, unchanged.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() {
	errors.HandleError(app.Run())
}
