// Package differential asks two API servers the same random questions and
// compares their answers: kube-apiserver, which is right by definition, and
// keepwatch serve, over the contents of one etcd.
//
//	              ┌─▶ kube-apiserver ─┐
//	Generator ─▶ Request              ├─▶ Compare ─▶ Report
//	              └─▶ keepwatch serve ┘
//	                        │
//	       World: one etcd, whose objects change only between phases
//
// A phase is thousands of requests while nothing is written. Both servers have
// seen everything by then, so every answer is determined: it is compared byte for
// byte, but for what masks.go hides and allowed.go permits, each with its reason.
// Between two phases the world changes, while watches are open at both servers,
// and history is compacted once.
//
// The seed determines the writes and the requests but for what servers draw by
// themselves: revisions at the start, UIDs and times.
package differential
