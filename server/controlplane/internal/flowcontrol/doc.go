// Package flowcontrol creates the FlowSchemas and PriorityLevelConfigurations that kube-apiserver creates at its start,
// and restores them as it does. They limit no request.
//
//	ensure.go  Ensure and Run
package flowcontrol
