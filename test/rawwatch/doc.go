// Package rawwatch follows a Kubernetes API by nothing but HTTP requests, through
// whatever happens to the server, and judges what it was told by the promises of
// package keepwatch, with etcd's own history as the truth.
//
//	trial := rawwatch.Start(t, server.Config(), etcd)
//	trial.Written(500)
//	server.Kill()
//	server.Restart(t.Context())
//	trial.Judge()
//
// Watchers only ever watch: from the revision before the first write, and after
// each end from the last one that they were told of. They never list, and take no
// initial events, so that any revision the server does not know any more is seen.
package rawwatch
