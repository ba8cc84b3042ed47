// Command keepwatch-apiserver is the Kubernetes API server with Keepwatch's reads.
package main

import (
	"os"
	_ "time/tzdata" // CronJob's time zones

	_ "golang.org/x/crypto/x509roots/fallback" // certificate authorities, in an image that has none
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"

	"github.com/keepwatch/keepwatch/kubernetes/apiserver"
)

func main() { os.Exit(cli.Run(apiserver.NewCommand())) }
