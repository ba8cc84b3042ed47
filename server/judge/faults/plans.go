package faults

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed plans
var planFiles embed.FS

// Plans returns the named plans, ordered by their names.
func Plans() []Plan {
	files, err := planFiles.ReadDir("plans")
	if err != nil {
		panic(err) // the files are part of the program
	}
	var plans []Plan
	for _, file := range files {
		plan, _, err := NamedPlan(strings.TrimSuffix(file.Name(), ".yaml"))
		if err != nil {
			panic(err)
		}
		plans = append(plans, plan)
	}
	return plans
}

// NamedPlan returns the plan of a name such as "compaction", and its text.
func NamedPlan(name string) (Plan, []byte, error) {
	text, err := planFiles.ReadFile("plans/" + name + ".yaml")
	if err != nil {
		return Plan{}, nil, fmt.Errorf("no plan is named %q", name)
	}
	plan, err := ParsePlan(text)
	if err != nil {
		return Plan{}, nil, fmt.Errorf("plan %s: %w", name, err)
	}
	return plan, text, nil
}
