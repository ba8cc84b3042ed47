// Package check is the promises of package keepwatch as an oracle: given what a
// source committed, what a consumer asked to see, and what it received, it names
// every promise that was broken, the place, and the two facts that disagree.
//
// It is written from the definitions alone and shares no code with what it
// judges. Nothing here knows how a store or a reflector works: states are folds
// of writes, a view is a filter over states, and each promise is a comparison of
// what follows from the history with what was received.
//
// What it can judge is P1 to P10 and P13 for any transcript, P11 where the
// transcript says when faults and writes stopped, and P3's "only when the history
// itself is gone" where the transcript says what was still known. P12 speaks of
// memory and of other consumers; no transcript shows it.
package check
