// Package quotas enforces ResourceQuotas, as kube-apiserver's admission plugin ResourceQuota and
// kube-controller-manager's controller do (https://kubernetes.io/docs/concepts/policy/resource-quotas/).
//
// The plugin is that of k8s.io/apiserver: it adds what a write needs to status.used, and refuses a write that exceeds
// status.hard. The [Controller] computes both. Neither does anything before there is a ResourceQuota: the plugin
// reads the quotas of a namespace from the server's memory, and the controller waits for the first one.
//
// The controller follows the resources that quotas name, and no others. It computes a status when its quota is new or
// has other limits, when an object is deleted or ends, a second after an object was created or the plugin has changed
// the status, and every five minutes. The plugin counts an object before it is stored. So the controller counts what is
// stored and what this server's plugin has counted since: until an informer has it, or a second after its request has
// ended, because it may have been refused later. Servers that share an etcd do not know each other's writes; nor does
// one know a write that its informers lack for longer than that second.
//
//	admission.go   the admission plugin
//	evaluator.go   what an object of a resource uses, and the evaluators of all resources
//	pods.go        the evaluator of pods
//	services.go    the evaluator of services
//	claims.go      the evaluator of persistent volume claims
//	controller.go  Controller: computes the status of one quota at a time
//	writes.go      Writes: what the plugin counts and the controller's informers do not have yet
//	followed.go    the resources that the controller follows
package quotas
