package follow

import (
	"cmp"
	"context"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/source/kube"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// transactionBytes bounds a transaction of the changes of one type. Under load, a sink stores the more changes per
// second the fewer transactions they need.
const transactionBytes = 4 << 20

// How often the types of patterns are requested, and how long the server must not have shown one until it leaves. Tests
// shorten them.
var RequestEvery, LeaveAfter = apitypes.DefaultRequestEvery, apitypes.DefaultLeaveAfter

// destination is where the resources are stored.
type destination struct {
	open    func() (sink.Sink, error)
	report  *syncReport
	started func(*transfer.Transfer) // is called before the transfer runs
	// batchBytes bounds the changes of one type that are stored at once; 0 is the default of kube.Options.
	batchBytes int
	// unstored is true if nothing outlasts the process: the cluster needs no other name than its address.
	unstored bool
}

// follow stores the resources in one sink until ctx is done. It returns the reason of the end, never nil.
func (o *syncOptions) follow(ctx context.Context, resources []syncResource, to destination) error {
	return cluster.LeavePlugin(ctx, o.Config, func() error { return o.store(ctx, resources, to) })
}

func (o *syncOptions) store(ctx context.Context, resources []syncResource, to destination) error {
	report := to.report
	config, err := cluster.Connection(o.Config)
	if err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.Wrap(report.clock.read)
	namespace, err := o.namespace()
	if err != nil {
		return err
	}
	identity := stream.Cluster{Server: config.Host}
	if !to.unstored {
		if identity, err = cluster.Identify(ctx, config, report.start.retryRequest); err != nil {
			return err
		}
		if identity.UID == "" {
			report.printf("the UID of the namespace kube-system cannot be read: another cluster at %s is not noticed", config.Host)
		}
	}
	into, err := to.open()
	if err != nil {
		return err
	}
	options := apitypes.Options{
		Config: config, Cluster: identity, RequestEvery: RequestEvery, LeaveAfter: LeaveAfter, UntilSynced: o.untilSynced,
		Source: kube.Options{
			Representation: o.representation, PageSize: o.PageSize(), IdleTimeout: o.idleTimeout, BatchBytes: to.batchBytes,
		},
		WatchTimeout: report.watchTimeout, Added: report.add, Logf: report.printf,
		Hooks: transfer.Options{
			Observe: report.observe, Retrying: report.retrying, Refused: report.refused,
			Expired: report.expired, Clock: report.clock.now,
			Committed: report.committed,
		},
	}
	var status func() transfer.Status
	options.Started = func(t *transfer.Transfer) {
		status = t.Status
		to.started(t)
	}
	options.Hooks.Opened = func(resources []transfer.Resource) {
		report.opened(resources)
		report.clocks(status().Newest())
	}
	options.Hooks.Cut = func(line int, cut sink.Cut) { report.cut(status(), line, cut) }
	if options.Resources, err = o.resolveAll(ctx, resources, namespace, report); err != nil {
		return err
	}
	for _, r := range resources {
		if !r.pattern() {
			continue
		}
		p := apitypes.Pattern{Group: r.group}
		if p.Selection, err = r.selected(cmp.Or(r.Namespace, namespace), false); err != nil {
			return err
		}
		options.Patterns = append(options.Patterns, p)
	}
	err = apitypes.New(options).Run(ctx, into)
	report.end()
	return err
}
