// Package project removes and redacts parts of objects before they are stored.
//
//	project.go      Projection
//	path.go         paths: a part of JSONPath
//	annotations.go  annotations that repeat values of their object
package project
