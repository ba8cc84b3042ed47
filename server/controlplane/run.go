package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// startTimeout bounds the start of the API servers. It takes a second, or a minute on a disk that
	// stalls. A start that fails returns its cause, so that only a hang exceeds this.
	startTimeout = 5 * time.Minute
	// drainTimeout is how long requests and watches may take to end after ctx is done. Their
	// connections are closed after it.
	drainTimeout = 2 * time.Second
	// flushTime is the time in which the ends of the last responses are sent.
	flushTime = 50 * time.Millisecond
	// initialRetry is the pause after an initial object could not be created.
	initialRetry = time.Second
	// pollInterval is the time between two requests of the server's readiness.
	pollInterval = 10 * time.Millisecond
)

// run serves until ctx is done. It calls ready once, when the server answers all requests.
func (c *chain) run(ctx context.Context, ready func() error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() { served <- c.front.PrepareRun().RunWithContext(serving) }()
	var loops sync.WaitGroup
	if c.namespaces != nil {
		loops.Go(func() { c.namespaces.run(serving) })
	}

	err := c.waitReady(ctx, served)
	if c.defaults != nil {
		loops.Go(func() { c.defaults.Run(serving) })
		loops.Go(func() { c.signer.Run(serving) })
		loops.Go(func() { c.policyChecker.Run(serving) })
		loops.Go(func() { c.runCollector(serving) })
		loops.Go(func() { c.used.Run(serving) })
	}
	if c.workloads != nil {
		loops.Go(func() { c.workloads.Run(serving) })
	}
	if c.registrar != nil {
		loops.Go(func() { c.registrar.Run(serving) })
		loops.Go(func() { c.flows.Run(serving) })
	}
	if c.aggregator != nil {
		loops.Go(func() { c.aggregator.Run(serving) })
	}
	if err == nil && ctx.Err() == nil {
		err = ready()
	}
	if err == nil {
		<-ctx.Done()
	}
	c.abortStart(served)
	stop()
	err = errors.Join(err, c.drain(served))
	c.stopPlugins() // it also ends the informers of parameters
	c.informers.Shutdown()
	if c.policy != nil {
		c.policy.Close()
	}
	c.extensions.Informers.Shutdown()
	loops.Wait()
	return err
}

// drain waits until the servers have ended. k8s.io/apiserver would also wait for idle connections:
// drain closes them when all requests are answered, and the others after drainTimeout.
func (c *chain) drain(served <-chan error) error {
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-c.drained:
		timeout.Reset(flushTime)
		<-timeout.C
	case <-timeout.C:
	}
	c.listener.CloseConnections()
	return <-served
}

// waitReady requests the server's readiness, as a client, until it is ready, ctx is done, or the start
// fails. With the objects in memory, it does not wait for the watch caches: requests wait for their own one.
func (c *chain) waitReady(ctx context.Context, served chan error) error {
	client, err := rest.HTTPClientFor(c.credentials.LoopbackConfig())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ready := c.credentials.URL() + "/readyz?exclude=" + noSpaceCheck
	if c.options.memory() && c.options.Storage == StoreStorage {
		ready += "&exclude=" + storagesCheck
	}
	deadline := time.Now().Add(startTimeout)
	for {
		answer, err := get(ctx, client, ready)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server isn't ready after %v: %w\n%s", startTimeout, err, answer)
		}
		select {
		case err := <-served:
			served <- err
			return fmt.Errorf("the server ended while starting: %w", err)
		case err := <-c.startFailed:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// abortStart completes the hook of k8s.io/apiextensions-apiserver that must not be interrupted, if it
// still waits. The signals below follow that hook.
func (c *chain) abortStart(served chan error) {
	c.definitions.startAborted.Store(true)
	for _, complete := range c.front.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-complete:
		case err := <-served:
			served <- err
			return
		}
	}
}

// get returns the body of a response, and an error unless the status is 200.
func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}
