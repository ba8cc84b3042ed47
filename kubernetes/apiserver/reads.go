package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"
)

// The values of --reads.
const (
	readsKeepwatch = "keepwatch" // this repository's storage and read path
	readsUpstream  = "upstream"  // kube-apiserver's watch cache and handlers
)

// encodingsBudget bounds the cached encodings of all resources, in bytes.
const encodingsBudget = 1 << 30

// reads has the flags that kube-apiserver does not have.
type reads struct{ by string }

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
