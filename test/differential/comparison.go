package differential

import "slices"

// Comparison decides which differences between the answers of two servers count.
type Comparison struct {
	compares   func(header string) bool
	masks      []mask
	exceptions []exception
	encodings  bool // ours follows each encoding by itself
}

// ServeBesideKubernetes compares keepwatch serve with kube-apiserver.
func ServeBesideKubernetes() *Comparison {
	return &Comparison{compares: serveHeader, masks: serveMasks, exceptions: append(slices.Clone(commonExceptions),
		compressed)}
}

// UpstreamBesideKubernetes compares keepwatch serve --storage=upstream with kube-apiserver. The
// library's storage has only the history since its start.
func UpstreamBesideKubernetes() *Comparison {
	c := ServeBesideKubernetes()
	c.exceptions = append(c.exceptions, laterStart)
	return c
}

// SameVersion compares keepwatch-apiserver with kube-apiserver of its version, or the ways to read of
// keepwatch-apiserver.
func SameVersion() *Comparison {
	return &Comparison{compares: versionHeader, masks: versionMasks, exceptions: append(slices.Clone(commonExceptions),
		notCompleted)}
}

// FrontOfKubernetes compares keepwatch proxy with the kube-apiserver behind it.
func FrontOfKubernetes() *Comparison {
	return &Comparison{compares: serveHeader, masks: commonMasks, exceptions: append(slices.Clone(commonExceptions),
		compressed), encodings: true}
}

// serveHeader excludes the headers that have the server's own objects (X-Kubernetes-Pf-…), too.
func serveHeader(name string) bool {
	return slices.Contains([]string{
		"Content-Type", "Content-Encoding", "Cache-Control", "Vary", "Retry-After", "Warning", "Allow",
		"X-Content-Type-Options",
	}, name)
}

// versionHeader excludes the headers that identify the request, its time, or the transport.
func versionHeader(name string) bool {
	return !slices.Contains([]string{"Audit-Id", "Date", "Content-Length", "Transfer-Encoding"}, name)
}
