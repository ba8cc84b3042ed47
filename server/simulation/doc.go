// Package simulation does what a cluster does with workloads, except that no container runs: it has the controllers of
// Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs, a scheduler, and kubelets that report pods as running.
// It is written to the documented behaviour of the API (https://kubernetes.io/docs/concepts/workloads/).
//
// A [Cluster] follows the server's objects. Each kind has a loop that handles one object at a time: it compares the
// object with what it should be, and writes the difference. Writes are awaited in the caches, so that a loop always
// reads its own. It has no state of its own: another Cluster continues on the same objects.
//
// A kubelet writes the status of a pod when the pod starts, becomes ready or ends, and of a node when it is new. What
// others write into a status between these stays. Nodes with the annotation [KWOK] have KWOK's controller as their
// kubelet, which does what Stages say. The scheduler and the controllers of this package serve the pods on all nodes.
//
// Time is that of a [Clock]: real time, which tests can advance. It applies to readinessProbe.initialDelaySeconds,
// minReadySeconds, progressDeadlineSeconds, activeDeadlineSeconds, ttlSecondsAfterFinished, the leases of nodes, and
// two annotations of pods, [RunFor] and [ExitCode].
//
//	cluster.go       Cluster: its caches and loops
//	loop.go          handles the objects of one kind
//	clock.go         Clock
//	ownership.go     which pods and ReplicaSets belong to an owner
//	nodes.go         nodes and their leases
//	scheduler.go     assigns pods to nodes
//	kubelet.go       the lives of pods
//	podsets.go       what the controllers of pods share
//	replicasets.go   ReplicaSets
//	deployments.go   Deployments: what is written
//	rollout.go       Deployments: what is decided
//	revisions.go     the ControllerRevisions of StatefulSets and DaemonSets
//	statefulsets.go  StatefulSets
//	daemonsets.go    DaemonSets
//	jobs.go          Jobs
//	jobpolicy.go     what a Job's policies say of its failed and succeeded pods
//	claims.go        PersistentVolumeClaims
package simulation
