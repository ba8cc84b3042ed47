// Package controlplane runs a Kubernetes API server inside a Go process: real discovery, OpenAPI,
// server-side apply, watches and custom resources over an embedded (or given) etcd, and no
// controllers.
//
//	server, err := controlplane.New(controlplane.Options{})
//	go func() { ended <- server.Run(ctx) }()
//	<-server.Ready()
//	client, err := kubernetes.NewForConfig(server.RESTConfig())
//
// # The picture
//
//	         https, one token
//	                │
//	     ┌──────────▼───────────┐   k8s.io/apiserver with the built-in kinds of
//	     │     front server     │   controlplane/builtin; discovery and OpenAPI of
//	     └──────────┬───────────┘   everything
//	what it doesn't │ know
//	     ┌──────────▼───────────┐   k8s.io/apiextensions-apiserver: the definitions of
//	     │  extension server    │   custom resources, and the custom resources; says 404
//	     └──────────┬───────────┘   to the rest
//	                │ storage.Interface, one a resource (storage.go)
//	     ┌──────────▼───────────┐   package storage, which writes by the library's etcd3
//	     │       backend        │   storage, over one client connection
//	     └──────────┬───────────┘
//	                │ a Unix socket in the data folder, or the network
//	     ┌──────────▼───────────┐
//	     │         etcd         │   in this process, or a cluster of the user's: read-only if
//	     └──────────────────────┘   another server has written to it (see Options.Adopt)
//
// A request passes the front server's chain of filters (deadline, authentication, impersonation,
// authorization, which allows everything) exactly once. Then either the front server's routes answer
// it or, untouched, the extension server's do.
//
// Both servers share one document of aggregated discovery. The two documents that a generic server
// keeps for itself are merged: the list at /apis by discovery.go, OpenAPI by openapi.go.
//
// Where things are:
//
//	server.go          starts and ends the layers in order
//	chain.go           builds the two servers; readers.go puts the read path in front of them,
//	                   definitions.go tells which definition a custom resource's storage has
//	run.go             runs them; definitionsync.go lets it interrupt their start
//	asked.go           encodes behind a start what large lists asked for before it
//	etcd.go            the embedded etcd; etcdcheck.go and etcdwal.go check its data before,
//	                   etcdlog.go reads its log, etcdspace.go keeps room in it,
//	                   verify.go checks its values
//	ownership.go       whose etcd it is; readonly.go answers writes if it is somebody else's
//	datadir.go         the data folder; identity.go and kubeconfig.go the files for clients
//	access.go          authorization; authn.go authentication
//	listener.go        bounds connections by descriptors_unix.go's count
//	metrics.go         shows what is counted
//	namespaces.go      the one loop that a real cluster has in a controller
//
// # What it isn't
//
// No controllers run: nothing is scheduled, started, scaled, collected or renewed. Only the contents
// of deleted namespaces are deleted, and events expire after an hour. Deleting with propagation
// Foreground or Orphan deletes at once, since no garbage collector would finish it. RBAC, quotas and
// limits are stored and not enforced. Package builtin tells what is checked of built-in kinds.
package controlplane
