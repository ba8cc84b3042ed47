package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

const (
	// startTimeout bounds the start of etcd, and that of the API servers. Each takes a second; a disk that
	// stalls makes it a minute. A start that fails ends by its cause, so that only a hang reaches this.
	startTimeout = 5 * time.Minute
	// flushTime is for the ends of the last answers to leave.
	flushTime = 50 * time.Millisecond
	// namespaceRetry is the pause after an initial namespace could not be created.
	namespaceRetry = time.Second
	// pollInterval is how often something that isn't finished is looked at again.
	pollInterval = 10 * time.Millisecond
)

// run serves until ctx ends. It calls ready once, as soon as everything is answered.
func (c *chain) run(ctx context.Context, ready func() error) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() { served <- c.front.PrepareRun().RunWithContext(serving) }()
	var loops sync.WaitGroup
	if c.namespaces != nil {
		loops.Go(func() { c.namespaces.run(serving) })
	}

	err := c.awaitReady(ctx, served)
	if err == nil && ctx.Err() == nil {
		err = ready()
	}
	if err == nil {
		<-ctx.Done()
	}
	c.endStart(served)
	stop()
	err = errors.Join(err, c.drain(served))
	c.informers.Shutdown()
	c.extensions.Informers.Shutdown()
	loops.Wait()
	return err
}

// drain waits for the servers to end. The library would wait on for idle connections; they are cut
// as soon as all requests are answered, and the busy ones when their time is over.
func (c *chain) drain(served <-chan error) error {
	timeout := time.NewTimer(drainTime)
	defer timeout.Stop()
	select {
	case <-c.drained:
		timeout.Reset(flushTime)
		<-timeout.C
	case <-timeout.C:
	}
	c.listener.cut()
	return <-served
}

// awaitReady asks the server, as a client, until it is ready, ctx ends, or the start fails.
func (c *chain) awaitReady(ctx context.Context, served chan error) error {
	client, err := rest.HTTPClientFor(c.access.own())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(startTimeout)
	for {
		answer, err := get(ctx, client, c.access.url+"/readyz?exclude="+noSpaceCheck)
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
		case err := <-c.broken:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// endStart ends the step of the library's start that must not be interrupted, if it still waits.
func (c *chain) endStart(served chan error) {
	c.definitions.givenUp.Store(true)
	for _, complete := range c.front.MuxAndDiscoveryCompleteSignals() { // which that step gives
		select {
		case <-complete:
		case err := <-served:
			served <- err
			return
		}
	}
}

// get succeeds when the answer is 200.
func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(body), err
}

// createInitialNamespaces is a step of the start. It returns no error: the library would end the process.
func (c *chain) createInitialNamespaces(hook genericapiserver.PostStartHookContext) error {
	for _, name := range initialNamespaces {
		for {
			err := ensureNamespace(hook, c.client, name)
			if err == nil {
				break
			}
			if hook.Err() != nil {
				return nil // the server ends
			}
			if apierrors.HasStatusCause(err, causeNoSpace) {
				c.broken <- fmt.Errorf("cannot create the namespace %s: %w", name, err)
				return nil
			}
			utilruntime.HandleErrorWithContext(hook, err, "Creation of a namespace is retried", "namespace", name)
			select {
			case <-hook.Done():
			case <-time.After(namespaceRetry):
			}
		}
	}
	return nil
}
