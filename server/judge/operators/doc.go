// Package operators judges operators: what does one do when it crashes between two writes, when an answer is lost, when
// its cache is old? The operator is a command in any language, or a function. It needs no change.
//
//	report, err := operators.Run(ctx, operators.Options{
//		Operator: operators.Operator{Command: []string{"./bin/manager", "--kubeconfig={kubeconfig}"}},
//		CRDs:     []string{"config/crd"},
//		Workload: "testdata/judge",
//	})
//	if err != nil { … }           // no verdict: the operator or its server cannot be started
//	report.Unexpected()           // the findings, each with the writes that led to it
//
// In a test, a function of the same process is judged: Operator.Start runs a manager with a configuration, until its
// context is done. Report.Err says whether the test fails, and Report.PrintTable(t.Output()) why. There is nothing to
// build and no process to wait for; with a short Options.Quiet, a plan takes little more than the start of its server.
// Managers of one process share what is global, like controller-runtime's metrics and names of controllers: give these
// no port, and skip the check of names (SkipNameValidation).
//
// # How
//
// Each run has a server of its own, in this process: a fork of one with the definitions and roles. The operator is
// started, the workload is performed step by step, and a step ends when the operator is quiet.
//
// Three runs have no fault. They are the reference: the state after each step, and the operator's writes in it, which
// are the places that plans disturb. Fields in which the three states differ may have any value; values of eight
// characters or more that are equal in each of the three, like a password that is stored twice, must be equal to each
// other.
//
// Then each plan has a run: one fault at one place. After it, every step has to end in the state of the reference.
// [Kinds] has what happens, [Verdict] what an operator can do wrong. A plan with a finding runs again, to see how often
// it shows. Then steps and objects of the workload, and faults of the plan, are left out as long as the verdict
// remains: each smaller workload has a reference of its own. This is done for the first finding of each verdict and
// kind of plans.
//
// # Workloads
//
// The files of the folder are the steps, in the order of their names.
//
//	*.yaml, *.yml, *.json  objects that are applied; namespaced ones without a namespace in default
//	*.patch.yaml           objects whose fields are merged into existing ones
//	*.delete.yaml          objects that are deleted
//	*.wait.yaml            objects that have to exist with these fields
//	*.advance              a duration, like 90s, by which the time of simulated workloads moves
//
// Without a workload, one is derived from samples as kubebuilder makes them: their objects are created; the numbers,
// booleans and enums of custom resources are changed, one a step, as far as the server accepts that; then these
// resources are deleted, and created again. It is the same in each run of the judge.
//
// # Upgrades
//
// With Options.Next a plan for each write starts this next version in place of the operator. Three runs of the next
// version alone are the reference of what follows: what the older one leaves behind, and the newer one would not make,
// is a finding.
//
// # Webhooks
//
// A command with {port} serves webhooks there, with the certificate in {certs}. Each run has a port, at which the
// configurations of Options.Webhooks are called, and the webhooks that convert objects of the definitions. While the
// operator is down, failurePolicy decides, as in a cluster: a step whose write is refused for this is repeated until
// the operator serves again.
//
// # Quiet
//
// An operator is quiet if for the time of Options.Quiet it has written nothing, no object has changed, it has read less
// than five times, none of its requests waits for an answer, and it has as many watches open as at this point of the
// reference. After a restart five times Options.Quiet, and at least five seconds, are enough in place of the last:
// watches that begin when they are needed are not there if what needed them is done. A watch that begins is a read.
// Leases, Events, reviews and tokens do not count. A step that is not quiet within Options.Patience ends the run.
//
// With old reads, or without events that are late, an operator may do the same again and again, and never be quiet. At
// the thirtieth time the old reads end, and the events arrive.
//
// On Linux no time passes while the command is stopped, or while one of its threads waits for a processor: an operator
// on a busy machine is not taken for a quiet one. Nor is one that waits for goroutines of this process.
//
// # What is compared
//
// The objects of all types that the workload or the operator has written to, also those that were there before.
// Random parts of names are replaced by *, UIDs and times by a word. Random are the ends of generated names, UIDs, and
// up to two parts between hyphens that differ in all runs without a fault, among the objects of a type in a namespace.
// Resource versions, generations, managed fields and creation times are not compared.
//
// # Limits
//
// A foreign process is not deterministic. Only what happens at the API is repeated, and a place may not be reached.
// Faults are those that the API's documentation allows; the reads of stale-restart that are old are lists and gets at
// resourceVersion 0, and the watches that follow them. Streaming lists are refused meanwhile, as by a server without
// them.
//
//	judge.go            Run: the reference, then the plans; the report
//	options.go          Options
//	operator.go         starts and kills an operator
//	process_unix.go     the process group of a command; process_other.go: none
//	death_linux.go      the end of a command with the judge; death_other.go: none
//	workload.go         reads the steps of a workload
//	sample.go           a workload derived from samples
//	selection.go        parts of a workload
//	shrink.go           the smallest plan that has a finding
//	server.go           the API server of a run
//	world.go            a server with its objects, and what a step does to it
//	traffic.go          what passes between the operator and its server, and whether it is quiet
//	request.go          the record of the operator's writes
//	webhook.go          the operator's admission webhooks: their address, and the steps that wait for them
//	openwatch.go        its watches: cut, delayed, ended
//	place.go            Place names a write in all runs
//	exchange.go         one write: execute, answer, refuse, abort
//	delay.go            events that arrive late, or not at all
//	past.go             reads that are answered from an earlier state
//	kind.go             the kinds of plans, and what they do
//	definition.go       a definition that goes and returns
//	foreign.go          what somebody else does to objects
//	upgrade.go          the operator's next version takes over
//	quiet.go            how long nothing has happened
//	held_linux.go       for how long a command could not run; held_other.go: unknown
//	run.go              one run: steps, restarts
//	settle.go           the end of a step: the state has arrived, and the operator is quiet
//	state.go            the state after a step, and how two states differ
//	mask.go             what may differ
//	names.go            names of which a part is random
//	reference.go        the runs without a fault
//	confirm.go          more of them, after a finding
//	verdict.go          the verdicts, and the oracles that give them
//	expectation.go      findings that are accepted
//	print.go            the report as a table, as JSON, as JUnit
//	html.go             the report as a page, with timelines
package operators
