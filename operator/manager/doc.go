// Package manager builds a program from operators: flags, signals, logging, leader election,
// and HTTP endpoints for health and metrics.
//
//	func main() {
//		op := operator.New("widgets.example.com")
//		operator.OnCreate(op, label)
//		manager.Main(op)
//	}
//
// [Main] owns the process: it parses os.Args, sets slog's default logger and klog's logger,
// handles SIGINT and SIGTERM, and exits. Nothing else in this package, or in operator, changes
// global state: a program with a main function of its own calls [operator.Run], and uses
// [Elected] and [HealthHandler] as it needs them.
//
// # Files
//
//	main.go        Main: flags, logging, kubeconfig, exit codes
//	leader.go      Elected: leader election by a Lease
//	endpoints.go   the servers of /healthz, /readyz and /metrics; HealthHandler
package manager
