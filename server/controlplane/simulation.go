package controlplane

import (
	"time"

	"github.com/keepwatch/keepwatch/server/simulation"
)

// The annotations that a [Simulation] knows.
const (
	// RunForAnnotation says how long the containers of a pod run, like "90s". Pods with restartPolicy Always, and those of
	// ReplicaSets, StatefulSets and DaemonSets, do not end. Pods of Jobs without it end at once, other pods not.
	RunForAnnotation = simulation.RunFor
	// ExitCodeAnnotation is the exit code of the containers of a pod that ends. The default is "0".
	ExitCodeAnnotation = simulation.ExitCode
	// KWOKAnnotation is the annotation of nodes that a simulation leaves to KWOK's controller, with their pods. Any value
	// counts.
	KWOKAnnotation = simulation.KWOK
)

// Simulation is a cluster without containers: its pods are scheduled, become Running and Ready, and end; the
// controllers of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs create and delete them; every node is
// ready, except those that are left to KWOK. If there is no node when the server starts, it creates node-1. It is safe
// for concurrent use.
type Simulation struct{ clock *simulation.Clock }

// NewSimulation returns a simulation in real time.
func NewSimulation() *Simulation { return &Simulation{&simulation.Clock{}} }

// Advance moves the simulation's time forward at once, and returns it. What is due by then happens soon after: Advance
// does not wait for it. It returns an error, and moves nothing, if d is negative, or if the time would be more than 292
// years ahead of real time.
func (s *Simulation) Advance(d time.Duration) (time.Time, error) { return s.clock.Advance(d) }

// SkipDelays makes pods ready as soon as they run, without the initial delays of their probes. It is called before the
// server starts.
func (s *Simulation) SkipDelays() { s.clock.SkipDelays() }

// Fork returns a simulation with the same time, which is advanced independently.
func (s *Simulation) Fork() *Simulation { return &Simulation{s.clock.Fork()} }
