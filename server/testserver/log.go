package testserver

import (
	"flag"

	"k8s.io/klog/v2"
)

// A server in the process of a test shares klog with it, and its libraries write twenty to forty lines at each start
// and end. So messages below warnings are not printed, unless -v is set. A logger that the test gives to klog receives
// all. The settings are made before anything logs.
func init() {
	setKlog("legacy_stderr_threshold_behavior", "false")
	setKlog("stderrthreshold", "WARNING")
}

// printVerbose lets klog print everything if -v is set.
func printVerbose() {
	if klog.V(1).Enabled() {
		setKlog("stderrthreshold", "INFO")
	}
}

func setKlog(name, value string) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	if err := flags.Set(name, value); err != nil {
		panic(err) // the flags of this version of klog are known
	}
}
