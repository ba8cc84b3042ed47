package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Reader names who answers reads. The set is closed.
const (
	readsKeepwatch = "keepwatch" // this repository's storage and read path
	readsUpstream  = "upstream"  // kube-apiserver's watch cache and handlers
)

const defaultEncodingsBudget = 1 << 30

// reads has the flags that kube-apiserver does not have.
type reads struct {
	by              string
	encodingsBudget int64
}

func newReads() *reads {
	return &reads{by: readsKeepwatch}
}

func (r *reads) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&r.by, "reads", r.by, "What answers GET, LIST and WATCH: keepwatch, or upstream, which is kube-apiserver's own watch cache")
}

func (r *reads) validate() []error {
	if r.by != readsKeepwatch && r.by != readsUpstream {
		return []error{fmt.Errorf("--reads=%q: give keepwatch or upstream", r.by)}
	}
	return nil
}
