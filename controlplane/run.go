package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
)

const (
	// startTime bounds the start of the API servers, which takes a second.
	startTime = time.Minute
	// flushTime is for the ends of the last answers to leave.
	flushTime = 50 * time.Millisecond
	// pollInterval is how often something that isn't finished is looked at again.
	pollInterval = 10 * time.Millisecond
)

// run serves until ctx ends. It calls ready once, as soon as everything is answered.
func (c *chain) run(ctx context.Context, ready func() error) error {
	// The library ends the process when a step of its start is interrupted: an end that comes
	// during the start has to wait for it.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	served := make(chan error, 1)
	go func() { served <- c.front.PrepareRun().RunWithContext(serving) }()
	var loops sync.WaitGroup
	if c.namespaces != nil {
		loops.Go(func() { c.namespaces.run(serving) })
	}

	err := c.awaitReady(served)
	if err == nil && ctx.Err() == nil {
		err = ready()
	}
	if err == nil {
		<-ctx.Done()
	}
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

// awaitReady asks the server, as a client, until it is ready.
func (c *chain) awaitReady(served chan error) error {
	client, err := rest.HTTPClientFor(c.access.own())
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(startTime)
	for {
		answer, err := get(client, c.access.url+"/readyz?exclude="+noSpaceCheck)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server isn't ready after %v: %w\n%s", startTime, err, answer)
		}
		select {
		case err := <-served:
			served <- err
			return fmt.Errorf("the server ended while starting: %w", err)
		case <-time.After(pollInterval):
		}
	}
}

// get succeeds when the answer is 200.
func get(client *http.Client, url string) (string, error) {
	answer, err := client.Get(url)
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

// createInitialNamespaces is a step of the start.
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
			utilruntime.HandleErrorWithContext(hook, err, "Creation of a namespace is retried", "namespace", name)
			select {
			case <-hook.Done():
			case <-time.After(pollInterval):
			}
		}
	}
	return nil
}
