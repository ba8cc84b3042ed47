// Package deploy tests what is in the folder deploy: the charts on a real kube-apiserver and on keepwatch serve, and
// the alerts and dashboards with the metrics of running commands.
package deploy
