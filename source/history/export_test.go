package history

// TimelineOf is [View.Timeline] with a bound for the states in memory.
var TimelineOf = (*View).timeline
