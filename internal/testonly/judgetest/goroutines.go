package judgetest

import (
	"runtime"
	"strings"
	"time"
)

// Goroutines waits until no goroutine runs code of a package, such as "keepwatch/audit.", and returns
// the stacks of those that are left after ten seconds. Other goroutines are ignored: a server in the
// same process, such as k8s.io/apiextensions-apiserver, ends some of its own minutes later.
func Goroutines(pkg string) string {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stacks := make([]byte, 4<<20)
		left := ""
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, pkg) {
				left += stack + "\n\n"
			}
		}
		if left == "" || time.Now().After(deadline) {
			return left
		}
	}
}
