// Package assets is keepwatch assets, and the programs that this binary is under the names of its links:
// kube-apiserver, etcd and kubectl.
//
//	assets.go     the command: a folder with the three names
//	apiserver.go  kube-apiserver
//	etcd.go       etcd, which stores nothing
//	exact.go      --exact: keepwatch-apiserver, and etcd, which stores data
//	kubectl.go    kubectl
package assets
