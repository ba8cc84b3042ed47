// Package controlplane runs a Kubernetes API server inside a Go process: discovery, OpenAPI,
// server-side apply, watches and custom resources, with its data in memory, or in an embedded or
// external etcd, without the controllers of workloads unless they are simulated. Package testserver is this server for
// tests in Go.
//
//	server, err := controlplane.New(controlplane.Options{})
//	go func() { ended <- server.Run(ctx) }()
//	<-server.Ready()
//	client, err := kubernetes.NewForConfig(server.RESTConfig())
//
// # The picture
//
//	              HTTPS, one token                        internal/serving
//	                     │
//	          ┌──────────▼───────────┐  deadline, authentication, impersonation and
//	          │       filters        │  authorization: once a request
//	          └──────────┬───────────┘
//	          ┌──────────▼───────────┐  LIST, GET and WATCH
//	          │       readpath       ├────────────────────────────────┐
//	          └──────────┬───────────┘                                │
//	writes, other paths  │                                            │
//	          ┌──────────▼───────────┐  k8s.io/apiserver with the     │
//	          │     front server     │  kinds of package builtin      │
//	          └──────────┬───────────┘                                │
//	paths without a route│                                            │
//	          ┌──────────▼───────────┐  k8s.io/apiextensions-         │
//	          │   extension server   │  apiserver: definitions and    │
//	          └──────────┬───────────┘  custom resources; 404         │
//	                     │                                            │
//	   storage.Interface │ one a resource                             │
//	          ┌──────────▼───────────┐   reads    ┌───────────────────▼──┐
//	          │       storage        ├────────────►      watchcache      │
//	          └──────────┬───────────┘            └───────────▲──────────┘
//	              writes │ etcd3 of k8s.io/apiserver          │ reflector on its source
//	          ┌──────────▼────────────────────────────────────┴──────────┐
//	          │  source/memory, or etcd: internal/embeddedetcd over a    │
//	          │  Unix socket, or the user's, which is read-only if it    │
//	          │  has another server's data (see Options.Adopt)           │
//	          └──────────────────────────────────────────────────────────┘
//
// A request passes the filters once. readpath answers a read of a resource that has a reader, from the
// same watch cache that the resource's storage reads. It leaves all other requests unchanged to the
// front server. With UpstreamStorage there is no readpath, and k8s.io/apiserver's own watch cache
// replaces storage and watchcache.
//
// Both servers share one document of aggregated discovery. The list at /apis and the OpenAPI documents
// of the two servers are merged (discovery.go, openapi.go).
//
// # Files
//
//	server.go              Server: starts and stops the layers in order
//	options.go             Options, their checks and defaults
//	memory.go              Memory: the data of a server without etcd
//	restored.go            a Memory that begins with the objects of another server
//	embedded.go            serves on the embedded etcd
//	chain.go               builds the two API servers
//	run.go                 runs the two API servers, and waits for their start and their end
//	refusals.go            reports the requests that the filters refuse (Options.Refused)
//	apiservices.go         APIServices, flow schemas and priority levels of the server itself, and the aggregator's checks
//	stored.go              reads and writes these objects at their storage
//	accounts.go            the objects on which tokens of service accounts depend
//	admission.go           admission: namespace lifecycle, LimitRanges, priorities, tolerations, policies, webhooks, quotas, roles
//	serviceresolver.go     the addresses of webhooks that are registered by Service
//	readers.go             finds the reader of a request, and puts readpath in front of the servers
//	definitioninformers.go lets the start of the extension server be aborted
//	recentencodings.go     encodes lists after a start that were requested before it
//	storage.go             backend: the database, and a storage for each resource
//	etcddatabase.go        an etcd as the database
//	upstream.go            the storage with UpstreamStorage
//	ownership.go           decides whether an etcd belongs to this server
//	interceptor.go         refuses writes to an etcd of another server
//	readonly.go            answers write requests if the etcd belongs to another server
//	nospace.go             the error of a write while etcd has no space
//	verify.go              checks every object in etcd (Options.Verify)
//	initial.go             creates what every cluster has at its start
//	garbage.go             what the garbage collector follows
//	quotas.go              ResourceQuotas, read at their storage
//	simulation.go          Simulation
//	advance.go             the path by which clients advance the time of the simulation
//	namespaces.go          completes the deletion of namespaces
//	namespacecontent.go    what a terminating namespace waits for, and says in its conditions
//	discovery.go           merges the list at /apis
//	openapi.go             merges the OpenAPI documents
//	version.go             answers /version
//
//	builtin                the built-in kinds
//	columns                the tables of kubectl get
//	openapi                the schemas of the built-in kinds
//	internal/apiservices   registers the served versions as APIServices
//	internal/certificates  approves and signs CertificateSigningRequests
//	internal/datadir       the data folder
//	internal/embeddedetcd  the embedded etcd: checks of its data, start, space
//	internal/established   creates custom resources as soon as their definition is established
//	internal/flowcontrol   the flow schemas and priority levels that a server begins with
//	internal/garbage       deletes the dependents of deleted owners
//	internal/limitranges   defaults and bounds of resources by LimitRanges
//	internal/nsdefaults    the service account and the config map that every namespace has
//	internal/policies      which admission policies are valid, and what their evaluation needs
//	internal/priorities    the priority of pods by PriorityClasses
//	internal/quotas        admission by ResourceQuotas, and their status
//	internal/rbac          authorization by roles and bindings
//	internal/services      cluster IPs and node ports of Services
//	internal/resourcename  which resources of containers are native, extended or huge pages
//	internal/serving       listener, certificates, credentials, authentication
//	internal/tokens        the tokens of service accounts
//	internal/tolerations   the default tolerations of pods
//
// # Limits
//
// Without Options.Simulation no controllers of workloads run: nothing is scheduled, started, scaled or renewed. No
// container runs in any case.
//
// With Options.Controllers the server creates the default objects of namespaces, deletes the dependents of deleted
// owners, computes the status of ResourceQuotas, and signs approved certificates for clients. Without them, admission
// enforces the status of quotas that a client writes, and a deletion with propagation Foreground or Orphan deletes at
// once: no garbage collector would complete it.
//
// In any case the server deletes the contents of deleted namespaces, the custom resources of deleted definitions, and
// events, which expire after Options.EventTTL. RBAC is enforced only with Options.Authorization. Package builtin
// describes which checks the built-in kinds have.
package controlplane
