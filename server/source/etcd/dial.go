package etcd

import "google.golang.org/grpc"

const (
	// streamWindow and connWindow bound how many bytes etcd may send before the client has
	// read them. With gRPC's estimate, which begins at 64 KiB, etcd waits for the client
	// many times in each page.
	streamWindow = 4 << 20
	connWindow   = 16 << 20
	readBuffer   = 256 << 10
)

// DialOptions returns options for clientv3.Config with buffers for large pages. A source
// works with any client; with these options it waits less for the connection.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow),
		grpc.WithReadBufferSize(readBuffer),
	}
}
