// Command etcdutl has etcdutl's command snapshot, unchanged: snapshot restore FILE.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
)

func main() {
	if err := etcdutl.NewSnapshotCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "etcdutl:", err)
		os.Exit(1)
	}
}
