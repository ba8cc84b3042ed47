//go:build !k8s_v0.38

package clientgo

// newer has the methods of client-go's interface that Shared does not have itself: none before v0.38.
type newer struct{}

func (*newer) of(*Shared) {}
