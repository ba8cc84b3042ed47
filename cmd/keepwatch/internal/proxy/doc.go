// Package proxy is keepwatch proxy and keepwatch top.
//
//	proxy.go   the flags, and the process
//	audit.go   its audit log: kube-apiserver's flags
//	rights.go  the ClusterRole that it needs
//	top.go     keepwatch top
package proxy
