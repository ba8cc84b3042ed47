// Package compat tests the library with the versions of Kubernetes' libraries that its users have. For each version it
// makes a module of a user, which requires them and the library, and checks that
//
//   - the module keeps its versions, and a program of informer, operator and stream compiles;
//   - the library's tests pass with these versions, and from client-go v0.35 on those of informer/clientgo, too;
//   - client-go's own tests of its shared informer pass on clientgo's, as far as they do not reach into client-go's;
//   - an operator of package managed runs on the controller-runtime of that version, with the one-line replacement.
//
// With -short, which .ci/run uses, the oldest and the newest version compile, and nothing else; the tests of the
// repository itself are those of the version between. make compat runs everything.
//
// # Files
//
//	version.go         the versions, and which controller-runtime goes with each
//	module.go          the module of a user
//	clientgotests.go   client-go's tests, made to run on clientgo's informers
//	testdata           the sources of a user, and what client-go's tests need of an informer's inside
package compat
