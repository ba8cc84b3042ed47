// Package rawwatch watches a Kubernetes API by plain HTTP requests, while the test disturbs
// the server, and judges the events by the promises of package keepwatch, against etcd's
// own history.
//
//	trial := rawwatch.Start(t, server.Config(), etcd)
//	trial.Written(500)
//	server.Kill()
//	server.Restart(t.Context())
//	trial.Judge()
//
// Watchers only watch: from the revision before the first write, and after each end from
// the last one that they received. They never list, so a revision whose history the server
// does not have any more is a failure. Some of those of StartBehind begin with a streaming list.
//
// What something records of a trial, and shows later, is judged with Record, End and Replay.
package rawwatch
