// Package fairness bounds the requests that memory answers at a time, by the priority and fairness of
// k8s.io/apiserver.
//
// The FlowSchemas and PriorityLevelConfigurations are the server's, or those that kube-apiserver begins with if the
// proxy may not read them. A request occupies its seats while it uses the processor. It gives them back early when it
// waits for its client or for the server: a watch after its initial events, as in kube-apiserver, and also a response
// that its client does not read.
//
// # Files
//
//	gate.go           who is admitted
//	seats.go          when a request gives its seats back
//	configuration.go  the server's configuration, or the default one
package fairness
