package etcd

import "google.golang.org/grpc"

const (
	// streamWindow and connWindow are how much etcd may send before we have taken it, in
	// bytes: with gRPC's estimate, which begins at 64 KiB, etcd waits for us many times
	// in every page.
	streamWindow = 4 << 20
	connWindow   = 16 << 20
	readBuffer   = 256 << 10
)

// DialOptions make a client fit to read much at a time; see clientv3.Config. A source
// works with any client, and with these it waits less.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(readBuffer),
	}
}
