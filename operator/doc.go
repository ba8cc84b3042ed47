// Package operator runs handlers for the objects of a Kubernetes API: functions
// that are called when an object was created, has changed, or is to be deleted, and
// called again until they succeed.
//
//	op := operator.New("widgets.example.com")
//	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
//		r.Patch.Status("phase", "Ready")
//		return nil
//	}, operator.Retries(5))
//	err := op.Run(ctx, cfg)
//
// Package manager builds a program from operators, with flags, leader election and endpoints.
// This package changes no global state; without the option [Logger] it logs to
// slog.Default, and it records spans with OpenTelemetry's global provider.
//
// The meaning of handlers, causes, errors and progress is that of kopf's
// documentation (https://docs.kopf.dev), in Go.
//
// # What you may rely on
//
//   - A handler is called until it succeeds or fails permanently, over every restart, and
//     not again for the same change once its success was written to the object. If the
//     process ends between the two, it is called again: handlers must be idempotent.
//   - One object's handlers run one at a time, and those of the next object of its name after its
//     last event; objects of different names are handled in parallel. Timers and daemons run beside them;
//     delete handlers wait for running calls of timers. Handlers see an object as
//     it was after the operator's last patch of it, or later.
//   - Change handlers always see the last state of an object, even if it changes while they
//     run. A reverted change is reported too, unless the process was killed during that call.
//     They may not see intermediate states.
//   - A handler that fails is called again after 5 ms, and after twice the wait for each further
//     failure, up to a minute. A handler's first failure is always written to the object.
//     Retries closer together than 1 s are written at most once a second, so that a process
//     that is killed loses the count of at most two seconds.
//   - An object that cannot be handled, for example because the API rejects a patch or
//     progress has no space on it, has an annotation that says why, and is
//     handled again after 1 s, 1 s, 2 s, 3 s, 5 s and so on up to 610 s. It does not delay
//     other objects.
//   - Only the errors that [Run] lists end an operator. A lost election ends Run's context:
//     Run returns nil if its handlers return in time, and manager.Elected returns
//     ErrLeadershipLost. After Run has returned, nothing is written.
//
// # What is stored on the objects
//
// With the prefix that [Prefix] sets: the desired state that was handled last, the progress
// of handlers that have not finished, a finalizer if a delete handler or a daemon needs
// one, and the reason why an object cannot be handled. Operators that handle the same
// objects need different prefixes.
//
// # Files
//
//	operator.go, handler.go   an operator and its options; the declaration of handlers
//	background.go             the declaration of timers and daemons
//	request.go, patch.go      what a handler receives, and how it changes its object
//	errors.go                 errors that determine whether and when a call is retried
//	run.go                    Run: start and end of operators
//	engine.go                 a running operator: objects, queue, workers
//	source.go, api.go         the two interfaces to the cluster, which tests replace
//	object.go                 one object: its state, its events, its pending patch
//	process.go                one reconciliation of an object
//	call.go                   one call of a handler
//	status.go                 whether the status has an endpoint of its own
//	send.go, condition.go     patches; the condition of an object whose patch is rejected
//	task.go                   one call of a timer or daemon
//	events.go, metrics.go     Kubernetes Events; metrics
//	index.go, kind.go         indexes of objects; discovery of the resource
//	internal/cycle            the decision about one state of an object, as a pure function
//	internal/background       running timers and daemons
//	internal/queue            the queue of objects
//	internal/throttle         the waits of objects that cannot be handled
//	internal/write            the requests of a patch, and what their answers mean
package operator
