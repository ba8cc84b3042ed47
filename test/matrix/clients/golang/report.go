package main

import (
	"encoding/json"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/test/matrix/clients"
)

var (
	stdout   = json.NewEncoder(os.Stdout)
	stdoutMu sync.Mutex
)

// report prints a line. Without a reader of stdout the program ends.
func report(line clients.Line) {
	stdoutMu.Lock()
	defer stdoutMu.Unlock()
	if err := stdout.Encode(line); err != nil {
		os.Exit(1)
	}
}

func event(kind string, o metav1.Object) clients.Line {
	return clients.Line{Type: kind, Name: o.GetName(), UID: string(o.GetUID()), Revision: o.GetResourceVersion()}
}

func listed[T any, O interface {
	*T
	metav1.Object
}](items []T) clients.Line {
	line := clients.Line{Type: "LISTED", Objects: map[string]string{}}
	for i := range items {
		o := O(&items[i])
		line.Objects[o.GetName()] = string(o.GetUID()) + "/" + o.GetResourceVersion()
	}
	return line
}

func failed(err error) clients.Line { return clients.Line{Type: "ERROR", Message: err.Error()} }

var synced = clients.Line{Type: "SYNCED"}
