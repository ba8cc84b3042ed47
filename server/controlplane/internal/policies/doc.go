// Package policies decides which ValidatingAdmissionPolicies, MutatingAdmissionPolicies and bindings of them are
// accepted, and gives the plugins of k8s.io/apiserver that evaluate them what they need from the server. Rules and
// messages are kube-apiserver's.
//
//	admission.go      Admission: refuses invalid policies and bindings, and parameters that their author may not read
//	validation.go     the rules of specs
//	expressions.go    the rules of CEL expressions
//	rights.go         the rights to read parameters
//	mapper.go         Mapper: the resource of a kind, by discovery
//	schemas.go        Client: the schemas of kinds, fetched when a policy first needs them
//	typechecking.go   Checker: writes what the types of a policy's resources say about its expressions into its status
package policies
