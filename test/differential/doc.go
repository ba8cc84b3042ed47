// Package differential sends the same random requests to two API servers on one etcd and
// compares their answers: kube-apiserver, which is correct by definition, and keepwatch serve,
// keepwatch-apiserver, or keepwatch proxy in front of that kube-apiserver.
//
//	              ┌─▶ theirs ─┐
//	Generator ─▶ Request      ├─▶ Comparison ─▶ Report
//	              └─▶ ours ───┘
//	                    │
//	  World: one etcd, whose objects change only between phases
//
// A phase is thousands of requests while nothing is written. Both servers have followed
// etcd by then, so every answer is determined. Answers are compared byte by byte, except
// for the values that masks.go hides and the differences that allowed.go permits, each
// with its reason. [Comparison] chooses them: keepwatch-apiserver and kube-apiserver of the same version
// have fewer than keepwatch serve has. Between two phases the world changes, while watches are open at both
// servers, and history is compacted once.
//
// The seed determines the writes and the requests, except for the values that servers
// draw: revisions at the start, UIDs and times.
package differential
