package faults

import (
	"cmp"
	"slices"
	"time"
)

// Client is what one client did, by its user agent.
type Client struct {
	UserAgent string `json:"userAgent"`
	Requests  int    `json:"requests"`
	// Lists are first pages and streaming lists, Pages further pages. StreamLists are the
	// streaming lists alone. Watches have none of them.
	Lists       int `json:"lists"`
	Pages       int `json:"pages"`
	Watches     int `json:"watches"`
	StreamLists int `json:"streamLists"`
	// Events are the frames of watches that were sent to it.
	Events int `json:"events"`
	// Faults are the faults that its requests met, by their name.
	Faults map[string]int `json:"faults,omitempty"`
	// Retries are requests for the resource of an earlier one that failed.
	Retries int `json:"retries"`
	// LongestPause is the longest time between the end of a request that failed and the next one for its
	// resource.
	LongestPause time.Duration `json:"longestPauseNanoseconds"`
	// FastestRepetition is the shortest time between the starts of two requests of one class for one resource, the
	// first of which failed; 0 if there were none.
	FastestRepetition time.Duration `json:"fastestRepetitionNanoseconds"`
	// MostPerSecond is the highest number of requests that began within one second.
	MostPerSecond int `json:"mostPerSecond"`
}

// Report returns what each client did, ordered by the number of its requests, the highest first.
func Report(entries []Entry) []Client {
	byClient := make(map[string][]Entry)
	for _, e := range entries {
		byClient[e.Client] = append(byClient[e.Client], e)
	}
	clients := []Client{} // an empty list in JSON, too
	for agent, requests := range byClient {
		slices.SortStableFunc(requests, func(a, b Entry) int { return cmp.Compare(a.Start, b.Start) })
		c := Client{UserAgent: agent, Requests: len(requests), Faults: make(map[string]int),
			MostPerSecond: mostWithin(requests, time.Second)}
		for _, e := range requests {
			c.count(e)
		}
		c.judgeRetries(requests)
		clients = append(clients, c)
	}
	slices.SortFunc(clients, func(a, b Client) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return clients
}

func (c *Client) count(e Entry) {
	switch e.Class {
	case List, Newest:
		c.Lists++
	case ListPage:
		c.Pages++
	case StreamList:
		c.StreamLists++
		c.Lists++
	case Watch:
		c.Watches++
	}
	c.Events += e.Frames
	for _, f := range e.Faults {
		c.Faults[f.Fault]++
	}
}

// failed reports whether a client sees that a request failed.
func (e Entry) failed() bool {
	return e.End > 0 && (e.Code == 0 || e.Code >= 400 || len(e.Faults) > 0 || e.Err != "")
}

// target is what a client requests again after a failure.
type target struct{ resource, namespace, name string }

// judgeRetries sets what follows from the order of requests, by their start.
func (c *Client) judgeRetries(requests []Entry) {
	previous := make(map[target]Entry)
	for _, e := range requests {
		key := target{e.Resource, e.Namespace, e.Name}
		if before, ok := previous[key]; ok && before.failed() {
			c.Retries++
			c.LongestPause = max(c.LongestPause, e.Start-before.End)
			if gap := e.Start - before.Start; before.Class == e.Class && (c.FastestRepetition == 0 ||
				gap < c.FastestRepetition) {
				c.FastestRepetition = gap
			}
		}
		previous[key] = e
	}
}

// mostWithin returns the highest number of requests, ordered by their start, that began within a time.
func mostWithin(requests []Entry, length time.Duration) (most int) {
	first := 0
	for last := range requests {
		for requests[last].Start-requests[first].Start >= length {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
