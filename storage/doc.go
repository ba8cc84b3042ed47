// Package storage is k8s.io/apiserver's storage.Interface on a store that is fed
// straight from etcd: what a watch cache is to an API server, with exact history.
//
//	etcd ──▶ source/etcd ──▶ reflector ──▶ store ──▶ Get, GetList, Watch
//	  ▲                 (decode, encode: once, at the start later)
//	  └── k8s.io/apiserver's etcd3 ◀── Create, GuaranteedUpdate, Delete
//
// One line makes an aggregated API server use it:
//
//	options.Decorator = storage.Decorator()
//
// # Reads
//
// Get, GetList and Watch are answered from the store. A consistent read asks etcd
// for its newest revision, with one quorum read for all who wait for one, and then
// waits until the store holds it. A list at a past revision is exact: from the
// store as far as its window reaches, else from etcd, else 410 Expired. What the
// store can't answer in time, etcd is asked.
//
// # Watches
//
// A watch is a cursor over the store. Nothing is queued for it but what its channel
// holds, and it is never cut off for being slow. One that goes on from a revision
// behind the window is told the difference since then, in an order in which it can
// break off at any event and go on from there. For watches with selectors, the store keeps
// the metadata of states that were replaced behind the window, where labels or fields
// changed: what left the selection is DELETED, with that metadata. Beyond
// store.Options.AttributeBytes they get 410 Expired.
//
// A watch from a revision that etcd has not reached, by a quorum read that began after the
// request, ends with 410 Expired: etcd was restored from a backup, and the watch would wait
// for ever (kubernetes #107457).
//
// # Objects
//
// An object is decoded once: conversion, defaults and decryption are applied, and
// labels, fields and index values taken. That is done when it comes; but what there is
// at the start is taken as etcd has it, decoded when somebody asks for it, and all of
// it some seconds behind the start, with a quarter of a processor. Clients that were
// there before go on from their revisions and need none of it. What is kept is its encoding in
// the form in which it is served, a third of the memory of a Go value or less:
// protobuf for Go types that have it, JSON for custom resources. Types that are
// internal to a server are kept as etcd has them and go through the codec each time.
//
// # Objects that can't be read
//
// An object that can't be decrypted or decoded takes its place in the history. Who
// reads it tries again, since the trouble may have been the key server's; if it
// stays, a read is passed to etcd3, whose error is the answer, and a watch ends at
// that event with an error. No later event overtakes it.
//
// A selector matches only what was read. Whether it matches an object that can't be read
// is unknown, so a list or a watch that would have to know fails, without naming it. Indexes
// find such an object under every value, until a list can read it.
//
// # Writes
//
// Writes are etcd3's: preconditions, conflicts, leases and encryption are what they
// are everywhere else. The store's state is the first guess at the current one,
// which saves a read; etcd3 checks it.
package storage
