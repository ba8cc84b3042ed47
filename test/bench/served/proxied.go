package served

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/keepwatch/keepwatch/internal/testonly/figures"
	"github.com/keepwatch/keepwatch/test/bench/wire"
	"github.com/keepwatch/keepwatch/test/peer"
)

// Proxied is keepwatch proxy in front of a kube-apiserver, whose clients read pods. Reads are measured at each of the
// two, in turns: the proxy does not run while kube-apiserver is measured. Its clients have kube-apiserver's tokens.
type Proxied struct {
	direct *Server // kube-apiserver, also while it is behind the proxy
	proxy  *Server
	// stateful has an index on disk, slim drops managedFields.
	stateful, slim *Server
	writer         *Writer
	scale          Scale
}

// NewProxied returns proxies in front of a kube-apiserver. stateful runs with --state, slim with --drop managedFields.
func NewProxied(behind, proxy, stateful, slim *peer.Server, writer *Writer, scale Scale) (*Proxied, error) {
	p := &Proxied{writer: writer, scale: scale}
	for _, s := range []struct {
		by  Contender
		api *peer.Server
		as  **Server
	}{{KubeAPIServer, behind, &p.direct}, {Keepwatch, proxy, &p.proxy}, {Keepwatch, stateful, &p.stateful},
		{Keepwatch, slim, &p.slim}} {
		server, err := NewServer(s.by, s.api, 1)
		if err != nil {
			return nil, err
		}
		*s.as = server
	}
	return p, nil
}

// end ends the proxies.
func (p *Proxied) end() {
	for _, s := range []*Server{p.proxy, p.stateful, p.slim} {
		s.Kill()
	}
}

// RunProxied measures lists and fan-outs at the server and at the proxy.
func (r *Report) RunProxied(ctx context.Context, p *Proxied) error {
	p.end()
	defer p.end()
	if err := p.direct.idle(ctx); err != nil { // it has read what was loaded into etcd
		return err
	}
	var direct, proxied []step
	proxied = append(proxied, step{memoryRow, func(ctx context.Context) error { return p.measureMemory(ctx, r) }})
	for _, l := range proxyLists {
		direct = append(direct, step{l.Row, func(ctx context.Context) error {
			return p.direct.measureList(ctx, r, l, p.scale.Pods)
		}})
		proxied = append(proxied, step{l.Row, func(ctx context.Context) error { return p.measureList(ctx, r, l) }})
	}
	proxied = append(proxied, step{warmRow, func(ctx context.Context) error { return p.measureWarm(ctx, r) }})
	direct = append(direct, step{unwatchedRow, func(ctx context.Context) error { return p.measureUnwatched(ctx, r) }})
	for _, f := range proxyFanOuts {
		direct = append(direct, step{f.row(), func(ctx context.Context) error {
			return p.measureFanOut(ctx, r, p.direct, f)
		}})
		proxied = append(proxied, step{f.row(), func(ctx context.Context) error {
			if err := p.followOnly(ctx, asJSONName); err != nil {
				return err
			}
			return p.fromMemory(ctx, func() error { return p.measureFanOut(ctx, r, p.proxy, f) })
		}})
	}
	if err := r.take(ctx, p.direct.by, direct, p.scale.Rows); err != nil {
		return err
	}
	return r.take(ctx, p.proxy.by, proxied, p.scale.Rows)
}

// RunProxy measures what is measured once.
func (r *Report) RunProxy(ctx context.Context, p *Proxied) error {
	p.end()
	defer p.end()
	steps := []step{
		{busyRow, func(ctx context.Context) error { return p.measureBusy(ctx, r) }},
		{quietRow, func(ctx context.Context) error { return p.measureQuiet(ctx, r) }},
	}
	for _, q := range forwardedRequests {
		steps = append(steps, step{q.row, func(ctx context.Context) error { return p.measureForwarded(ctx, r, q) }})
	}
	steps = append(steps,
		step{slimRow.Row, func(ctx context.Context) error { return p.measureSlim(ctx, r) }},
		step{proxyRestart.row(), func(ctx context.Context) error { return p.measureRestart(ctx, r) }})
	return r.take(ctx, p.proxy.by, steps, p.scale.Rows)
}

// The representations in which a proxy follows resources, by the names that its metrics have.
const (
	asJSONName     = "json"
	asProtobufName = "protobuf"
	slimName       = "json;drop=managedFields"
)

var acceptOf = map[string]string{asJSONName: asJSON, asProtobufName: asProtobuf, slimName: asJSON}

// followed reports whether the proxy follows pods in a representation, and has caught up.
func (s *Server) followed(ctx context.Context, as string) (bool, error) {
	metrics, err := s.Metrics(ctx)
	return metrics.Sum("keepwatch_proxy_resource_state", peer.Labels{"resource": "pods", "encoding": as,
		"state": "live"}) > 0, err
}

// follow makes the proxy follow pods, by reads, and waits until it has caught up.
func (s *Server) follow(ctx context.Context, representations ...string) error {
	l, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	for _, as := range representations {
		read := wire.Request{Path: missingNamespace + anyState, Accept: acceptOf[as], Data: func([]byte) {}}
		for live := false; !live; {
			if _, err := l.fetch(ctx, read); err != nil {
				return err
			}
			if live, err = s.followed(ctx, as); err != nil {
				return err
			}
			if err := pause(ctx, retryInterval); err != nil {
				return fmt.Errorf("the proxy does not follow pods as %s: %w", as, err)
			}
		}
	}
	return nil
}

// running starts the proxy if it does not run.
func (s *Server) running(ctx context.Context) error {
	select {
	case <-s.process().Done():
		return s.Restart(ctx)
	default:
		return nil
	}
}

// followOnly makes the proxy follow pods in one representation, and no other: each has a watch at the server.
func (p *Proxied) followOnly(ctx context.Context, as string) error {
	if err := p.proxy.running(ctx); err != nil {
		return err
	}
	for other := range acceptOf {
		live, err := p.proxy.followed(ctx, other)
		if err != nil {
			return err
		}
		if live && other != as {
			if err := p.proxy.Restart(ctx); err != nil {
				return err
			}
		}
	}
	if err := p.proxy.follow(ctx, as); err != nil {
		return err
	}
	return p.proxy.idle(ctx)
}

// idle waits until a server has no background work: behind a first list, a proxy reads all objects for selectors.
func (s *subject) idle(ctx context.Context) error {
	const interval, rest = 2 * time.Second, 200 * time.Millisecond // 0.1 processors
	for {
		before, err := s.process().ProcessorTime()
		if err != nil {
			return err
		}
		if err := pause(ctx, interval); err != nil {
			return err
		}
		if after, err := s.process().ProcessorTime(); err != nil || after-before <= rest {
			return err
		}
	}
}

// followAll makes the proxy follow pods in both encodings.
func (p *Proxied) followAll(ctx context.Context) error {
	if err := p.proxy.running(ctx); err != nil {
		return err
	}
	return p.proxy.follow(ctx, asJSONName, asProtobufName)
}

// fromMemory calls do, and fails if the proxy forwards reads of pods meanwhile: the figures would be those of the
// server behind it.
func (p *Proxied) fromMemory(ctx context.Context, do func() error) error {
	before, err := p.proxy.forwarded(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	after, err := p.proxy.forwarded(ctx)
	if err == nil && after > before {
		err = fmt.Errorf("the proxy has forwarded %v reads of pods", after-before)
	}
	return err
}

// forwarded returns how many requests for pods the proxy has forwarded.
func (s *Server) forwarded(ctx context.Context) (float64, error) {
	metrics, err := s.Metrics(ctx)
	return metrics.Sum("keepwatch_proxy_forwarded_total", peer.Labels{"resource": "pods"}), err
}

// anyState selects any state, which a server has in memory.
const anyState = "?resourceVersion=0"

func inAnyState(l listMode) listMode {
	l.Row += ", resourceVersion=0"
	l.path += anyState
	return l
}

// proxyLists are the lists of the proxy. It forwards Tables.
var proxyLists = []listMode{inAnyState(listJSON), inAnyState(listGzip), inAnyState(listProtobuf), inAnyState(listTable)}

func (p *Proxied) measureList(ctx context.Context, r *Report, l listMode) error {
	if err := p.followAll(ctx); err != nil {
		return err
	}
	do := func() error { return p.proxy.measureList(ctx, r, l, p.scale.Pods) }
	if l.rows {
		return do()
	}
	return p.fromMemory(ctx, do)
}

// The measures of memory. Growth is that since the start, before anything is followed.
const (
	objectBytes = "bytes of the objects"
	heapGrowth  = "growth of heap and stacks, without garbage"
	heapPerByte = "the same, for each byte of the objects"
	restGrowth  = "growth of RSS"
	restPerByte = "growth of RSS, for each byte of the objects"
)

const memoryRow = "memory: pods"

// memoryStages are what the proxy follows, one after the other.
var memoryStages = []struct {
	row, as string
	list    listMode
}{
	{memoryRow + " in JSON", asJSONName, inAnyState(listJSON)},
	{memoryRow + " in JSON and protobuf", asProtobufName, inAnyState(listProtobuf)},
}

// measureMemory measures what a proxy has in memory that follows pods, at rest.
func (p *Proxied) measureMemory(ctx context.Context, r *Report) error {
	s := p.proxy
	if err := s.Restart(ctx); err != nil {
		return err
	}
	before, err := s.atRest(ctx)
	if err != nil {
		return err
	}
	var objects int64
	for _, stage := range memoryStages {
		if err := s.follow(ctx, stage.as); err != nil {
			return err
		}
		now, err := s.atRest(ctx)
		if err != nil {
			return err
		}
		conn, err := s.dial(ctx)
		if err != nil {
			return err
		}
		length, err := stage.list.verify(ctx, conn, p.scale.Pods)
		conn.close()
		if err != nil {
			return err
		}
		objects += length
		r.Add(s.by, stage.row, size(objectBytes, objects),
			size(heapGrowth, now.live-before.live), perByte(heapPerByte, now.live-before.live, objects),
			size(restGrowth, now.resident-before.resident), perByte(restPerByte, now.resident-before.resident, objects))
	}
	return nil
}

func perByte(measure string, n float64, bytes int64) Figure {
	return Figure{measure, figures.Count, math.Round(100*n/float64(bytes)) / 100}
}

// memory is what a server has in memory: without garbage, and for the kernel.
type memory struct{ live, resident float64 }

// atRest returns the memory of a server that does nothing.
func (s *Server) atRest(ctx context.Context) (memory, error) {
	if err := settle(ctx); err != nil {
		return memory{}, err
	}
	now, err := s.process().Memory() // before the garbage is collected
	if err != nil {
		return memory{}, err
	}
	live, err := s.live(ctx)
	return memory{live, float64(now.Resident)}, err
}

// measureWarm measures the memory behind lists in each encoding.
func (p *Proxied) measureWarm(ctx context.Context, r *Report) error {
	if err := p.followAll(ctx); err != nil {
		return err
	}
	return p.proxy.measureRest(ctx, r)
}

// proxyFanOuts are those in which kube-apiserver disconnects no watcher.
var proxyFanOuts = []fanOut{{100, 200}, informersBehind, {5000, 10}}

// informersBehind is the fan-out to as many watchers as the informers, of which the proxy is to spare the server the
// watches.
var informersBehind = fanOut{1000, 50}

// cpuBehind is kube-apiserver's CPU from before the watches are opened to their end, at it or behind the proxy.
const cpuBehind = "kube-apiserver's CPU"

// measureFanOut measures a fan-out, and what it costs kube-apiserver.
func (p *Proxied) measureFanOut(ctx context.Context, r *Report, s *Server, f fanOut) error {
	newest, err := s.newest(ctx)
	if err != nil {
		return err
	}
	before, err := p.direct.process().ProcessorTime()
	if err != nil {
		return err
	}
	if err := s.measureFanOut(ctx, r, f, watchPath(newest), p.writer.write, p.scale.Writing); err != nil {
		return err
	}
	after, err := p.direct.process().ProcessorTime()
	if err == nil {
		r.Add(s.by, f.row(), seconds(cpuBehind, after-before))
	}
	return err
}

// unwatchedRow is the writes of informersBehind without any watcher.
var unwatchedRow = fanOut{0, informersBehind.rate}.row()

// measureUnwatched measures what the writes cost kube-apiserver itself, which follows pods for its own memory.
func (p *Proxied) measureUnwatched(ctx context.Context, r *Report) error {
	u, err := measure(p.direct.process(), func() error {
		_, err := p.writer.write(ctx, int(p.scale.Writing.Seconds()*float64(informersBehind.rate)), informersBehind.rate)
		return err
	})
	if err == nil {
		r.Add(p.direct.by, unwatchedRow, seconds(cpuBehind, u.cpu))
	}
	return err
}

// slimRow is a list without managedFields.
var slimRow = func() listMode {
	l := inAnyState(listJSON)
	l.Row += ", --drop managedFields"
	return l
}()

// measureSlim measures a list of a proxy that drops managedFields, beside kube-apiserver's.
func (p *Proxied) measureSlim(ctx context.Context, r *Report) error {
	if err := p.slim.Restart(ctx); err != nil {
		return err
	}
	defer p.slim.Kill()
	if err := p.slim.follow(ctx, slimName); err != nil {
		return err
	}
	if err := p.slim.measureList(ctx, r, slimRow, p.scale.Pods); err != nil {
		return err
	}
	conn, err := p.direct.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	length, err := inAnyState(listJSON).verify(ctx, conn, p.scale.Pods)
	if err == nil {
		r.Add(p.direct.by, slimRow.Row, size(body, length))
	}
	return err
}

// proxyRestart has fewer informers than that of serve: each decodes all pods in this process.
var proxyRestart = restartClients{informers: 5, watchers: 1000}

// The measures of a restart of the proxy.
const (
	afterLists       = "last live again, after the first LISTs"
	watchesForwarded = "requests for pods forwarded"
)

// measureRestart measures a restart of the proxy with an index on disk. It is ready when it has listed pods in both
// encodings.
func (p *Proxied) measureRestart(ctx context.Context, r *Report) error {
	s := p.stateful
	if err := s.Restart(ctx); err != nil {
		return err
	}
	defer s.Kill()
	if err := s.follow(ctx, asJSONName, asProtobufName); err != nil {
		return err
	}
	err := s.measureRestart(ctx, r, p.writer, proxyRestart, s.Stop, func(ctx context.Context) error {
		if err := s.Restart(ctx); err != nil {
			return err
		}
		return s.waitFollowed(ctx, asJSONName, asProtobufName)
	})
	if err != nil {
		return err
	}
	forwarded, err := s.forwarded(ctx)
	if err != nil {
		return err
	}
	row := proxyRestart.row()
	r.Add(s.by, row, Figure{afterLists, figures.Seconds, r.value(s.by, row, lastLive) - r.value(s.by, row, restartReady)},
		Figure{watchesForwarded, figures.Count, forwarded})
	return nil
}

// waitFollowed waits until the proxy has caught up, without a read.
func (s *Server) waitFollowed(ctx context.Context, representations ...string) error {
	for _, as := range representations {
		for {
			live, err := s.followed(ctx, as)
			if err != nil {
				return err
			}
			if live {
				break
			}
			if err := pause(ctx, retryInterval); err != nil {
				return err
			}
		}
	}
	return nil
}
