// Package certificates decides who may approve and sign CertificateSigningRequests, and signs those for clients of the
// API server. In a cluster, three admission plugins of kube-apiserver and a controller of kube-controller-manager do;
// rules and messages are theirs.
//
//	request.go     the request in a CertificateSigningRequest
//	admission.go   Admission: who may approve and sign, and which subjects nobody may have
//	signer.go      Signer: signs approved requests
package certificates
