// Package testserver runs a Kubernetes API server inside a Go test: the server of `keepwatch serve`, with its data in
// memory, ready in a fraction of a second, and gone without a trace when the test ends.
//
//	func TestController(t *testing.T) {
//		srv := testserver.New(t, testserver.CRDs("config/crd"))
//		client, err := client.New(srv.Config(), client.Options{})
//
// It is an API server, not a fake: admission, validation by schemas, server-side apply, conflicts, status
// subresources, watches and finalizers are those of k8s.io/apiserver. Dependents of deleted owners are deleted.
// Without [Simulate], no controllers of workloads run: nothing schedules or starts pods. Package controlplane
// describes what is served.
//
// # Workloads
//
// With [Simulate], pods become Running and Ready on simulated nodes, without containers, and Deployments,
// ReplicaSets, StatefulSets, DaemonSets and Jobs progress. [Server.Advance] moves the time on which delays and the
// ends of Jobs depend.
//
// # Many servers
//
// Parallel tests each have their own server. The servers of a process share what the Kubernetes libraries have once
// in a process: metrics, klog's logger, and feature gates. klog prints warnings and errors only, unless -v is set.
//
// [Server.Fork] starts a second server with the same objects, without copying them. So a program makes an expensive
// setup once, and each test begins with it.
//
// # The past
//
// With [History], a server begins with the state of a cluster at a moment that `keepwatch sync` has stored.
//
// # Faults
//
// A test can cause the faults that a controller meets in a real cluster:
//
//	Expire      the history is gone: a watch from an earlier revision receives 410
//	CutWatches  the connections of all watches break
//	Restart     the server stops, and starts again on the same port
//	Rewind      the server restarts with the objects of an earlier revision: a restored backup
//	Conflict    the next updates are answered 409
//	Fail        the next requests that match are answered with a status
//	Delay       requests that match are answered later
//
// [Server.Requests] returns the requests that the server has received.
//
// # Files
//
//	server.go    Server: New, its clients, Fork, Restart, Rewind, Close
//	options.go   the options of New
//	log.go       what klog prints
//	setup.go     creates the CustomResourceDefinitions and objects of the options
//	manifest.go  reads them from files
//	faults.go    Conflict, Fail, Delay, CutWatches
//	request.go   Request, Match, and the log of requests
package testserver
