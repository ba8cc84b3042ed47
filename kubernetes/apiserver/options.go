package apiserver

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keepwatch/keepwatch/internal/watchhistory"
	"github.com/keepwatch/keepwatch/store"
)

// Reads is what answers GET, LIST and WATCH. The values are closed.
type Reads string

const (
	// ReadsKeepwatch is this repository's storage and read path.
	ReadsKeepwatch Reads = "keepwatch"
	// ReadsUpstream is kube-apiserver's watch cache and handlers.
	ReadsUpstream Reads = "upstream"
)

// Options are the flags that kube-apiserver does not have. WatchHistory and EncodingsBudget apply to
// ReadsKeepwatch only.
type Options struct {
	Reads Reads
	// WatchHistory bounds the history of each resource.
	WatchHistory watchhistory.History
	// EncodingsBudget bounds the cached encodings of all resources, in bytes.
	EncodingsBudget resource.QuantityValue
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{Reads: ReadsKeepwatch, EncodingsBudget: resource.QuantityValue{Quantity: *resource.NewQuantity(1<<30,
		resource.BinarySI)}}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar((*string)(&o.Reads), "reads", string(o.Reads),
		"what answers GET, LIST and WATCH: keepwatch, or upstream, which is kube-apiserver's own watch cache")
	flags.Var(&o.WatchHistory, "watch-history", watchhistory.Usage)
	flags.Var(&o.EncodingsBudget, "encodings-budget",
		"memory for encoded objects, which all resources share; what is dropped is encoded again for the next request")
}

// Validate returns the errors in the flags.
func (o *Options) Validate() []error {
	var errs []error
	if o.Reads != ReadsKeepwatch && o.Reads != ReadsUpstream {
		errs = append(errs, fmt.Errorf("--reads=%q: give keepwatch or upstream", o.Reads))
	}
	if o.EncodingsBudget.Sign() <= 0 {
		errs = append(errs, fmt.Errorf("--encodings-budget=%v: give a size above zero, as in 1Gi", &o.EncodingsBudget))
	}
	return errs
}

// history returns the bounds of each storage's history.
func (o *Options) history() store.Options {
	return store.Options{WindowBytes: o.WatchHistory.Bytes, WindowAge: o.WatchHistory.Age}
}
