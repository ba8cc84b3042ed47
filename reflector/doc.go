// Package reflector keeps a target equal to a source.
//
// What to do about every failure is decided by a pure state machine
// (internal/machine): one table from failure to verdict, one step from input to
// action. [Reflector.Run] performs the actions: it lists, watches, waits, and
// feeds the [keepwatch.Target]. A relist is the last resort; it has a reason, is counted,
// is jittered, and hands the target a difference, never an empty state.
package reflector
