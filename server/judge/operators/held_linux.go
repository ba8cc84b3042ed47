package operators

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// held measures the part of the time in which the processes of a group would have run and could not: some of them were
// stopped, or a thread waited for a processor.
type held struct {
	group   int
	asked   time.Time
	stopped bool                // when it was asked
	threads map[string]schedule // by their folders in /proc
}

// schedule is what the kernel has recorded of a thread.
type schedule struct{ ran, waited time.Duration }

// newHeld returns the measure of a group that starts now, with one process. That had another group before.
func newHeld(group int) *held {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	delete(groups.of, filepath.Join("/proc", strconv.Itoa(group)))
	return &held{group: group, asked: time.Now()}
}

// part returns that part of the time since the last call, from 0 to 1.
func (h *held) part() float64 {
	now := time.Now()
	passed := now.Sub(h.asked)
	before, stopped := h.threads, h.stopped
	h.asked, h.stopped, h.threads = now, false, map[string]schedule{}
	var longest time.Duration
	for _, process := range processesOf(h.group) {
		if state, _ := statOf(process); strings.ContainsRune("Tt", state) {
			h.stopped = true
		}
		threads, _ := filepath.Glob(filepath.Join(process, "task", "*")) // the pattern is one
		for _, thread := range threads {
			s, ok := scheduleOf(thread)
			if !ok {
				continue // it has ended
			}
			h.threads[thread] = s
			waited := s.waited - before[thread].waited
			if s == before[thread] { // what it waits for now is recorded when it runs
				if state, _ := statOf(thread); strings.ContainsRune("RD", state) {
					waited = passed
				}
			}
			longest = max(longest, waited)
		}
	}
	if passed <= 0 {
		return 0
	}
	if stopped || h.stopped {
		return 1
	}
	return float64(min(longest, passed)) / float64(passed)
}

// groups are those of all processes, which many runs ask for.
var groups struct {
	mu   sync.Mutex
	read time.Time
	of   map[string]int // by the processes' folders in /proc
}

// processesOf returns the folders of a group's processes; one that was started just now may be missing.
func processesOf(group int) (members []string) {
	groups.mu.Lock()
	defer groups.mu.Unlock()
	if time.Since(groups.read) >= checkPause/2 {
		groups.read = time.Now()
		before := groups.of
		groups.of = map[string]int{}
		all, _ := filepath.Glob("/proc/[1-9]*") // the pattern is one
		for _, process := range all {
			of, known := before[process]
			if !known {
				_, of = statOf(process)
			}
			groups.of[process] = of
		}
	}
	for process, of := range groups.of {
		if of == group {
			members = append(members, process)
		}
	}
	return members
}

// statOf returns the state and the group of a process or a thread, or zeros if it has ended.
func statOf(folder string) (state rune, group int) {
	content, _ := os.ReadFile(filepath.Join(folder, "stat"))
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:]) // the name before may have any character
	if len(fields) < 3 {
		return 0, 0
	}
	group, _ = strconv.Atoi(string(fields[2])) // the kernel has written it
	return rune(fields[0][0]), group
}

// scheduleOf returns what the kernel has recorded of a thread, if it is there.
func scheduleOf(thread string) (s schedule, ok bool) {
	content, _ := os.ReadFile(filepath.Join(thread, "schedstat"))
	n, _ := fmt.Sscan(string(content), &s.ran, &s.waited)
	return s, n == 2
}
