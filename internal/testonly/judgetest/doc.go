// Package judgetest has what the tests of packages conform and audit share: a proxy that makes a wrong
// server of a real one, and a wait for goroutines that should have ended.
//
//	proxy.go       the proxy
//	goroutines.go  the goroutines of a package
package judgetest
