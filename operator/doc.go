// Package operator runs handlers for the objects of a Kubernetes API: functions
// that are called when an object was created, has changed, or is to be deleted, and
// called again until they succeed.
//
//	op := operator.New("widgets.example.com")
//	operator.OnCreate(op, func(ctx context.Context, r *operator.Request[*Widget]) error {
//		r.Patch.Status("phase", "Ready")
//		return nil
//	}, operator.Retries(5))
//	operator.Main(op)
//
// The meaning of handlers, causes, errors and progress is that of kopf's
// documentation (https://docs.kopf.dev), in Go.
//
// # What you may rely on
//
//   - A handler is called until it has succeeded or failed for good, through every
//     restart, and not again for the same change after its success was written on
//     the object. If the process ends between the two, it is called again: write
//     handlers so that they may be.
//   - One object's handlers run one at a time; different objects are handled in
//     parallel. Handlers see an object as it was after the operator's last patch of it,
//     or later.
//   - Every state that an object ends up in is seen by the handlers of its changes,
//     also a change that comes while they run, and one that is taken back, unless
//     the process was killed in the call for it. Intermediate states may not be seen.
//   - An object that can't be handled, for example because the API rejects what is to be
//     written on it, is tried again after 1 s, 1 s, 2 s, 3 s, 5 s and so on up to
//     610 s, and holds up no other.
//   - What nobody can recover from ends [Operator.Run] with the cause: a kind that
//     can't be watched, a lost election, a broken invariant. Nothing else does.
//
// # What is kept on the objects
//
// With the prefix that [Prefix] sets: the essence that was handled last, the progress
// of handlers that are not done yet, a finalizer where a delete handler or a daemon
// asks for one, and, while an object can't be handled, why. Operators that handle
// the same objects need different prefixes.
package operator
