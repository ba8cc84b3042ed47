package follow

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/cluster"
	"github.com/keepwatch/keepwatch/cmd/keepwatch/internal/exit"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream/project"
	"github.com/keepwatch/keepwatch/stream/sink"
	"github.com/keepwatch/keepwatch/stream/transfer/apitypes"
)

// syncSettings are the sinks and the resources: the file of -f, or the same from flags.
type syncSettings struct {
	sinkSettings `json:",inline"` // of the only sink
	Sinks        []sinkSettings   `json:"sinks"` // in place of it
	Resources    []syncResource   `json:"resources"`
}

// timeSpan is a flag and a field of a file: a duration that is not negative, and may have days: 90d.
type timeSpan struct{ time.Duration }

func (t *timeSpan) Set(text string) (err error) {
	t.Duration, err = history.ParseSpan(text)
	return err
}

func (t *timeSpan) String() string {
	if t.Duration == 0 {
		return "0" // the help does not show it
	}
	return t.Duration.String()
}

func (t *timeSpan) Type() string { return "duration" }

func (t *timeSpan) UnmarshalJSON(text []byte) error {
	if unmarshalFlag("rotateAge", t, text) != nil {
		return fmt.Errorf("rotateAge must be a time such as 90d or 12h, not %s", text)
	}
	return nil
}

// thinning is a flag and a field of a file: AGE:INTERVAL, such as 7d:1h, or several, such as 7d:1h,30d:1d.
type thinning []sink.Thinning

func (t *thinning) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		var next sink.Thinning
		age, interval, ok := strings.Cut(part, ":")
		var err, err2 error
		if ok {
			next.Age, err = history.ParseSpan(age)
			next.Interval, err2 = history.ParseSpan(interval)
		}
		switch {
		case !ok || err != nil || err2 != nil:
			return errors.New("give AGE:INTERVAL: 7d:1h retains one state an hour after 7 days, and 7d:1h,30d:1d one a day after 30")
		case next.Interval < time.Minute:
			return fmt.Errorf("the interval %v is less than a minute", next.Interval)
		case next.Interval%time.Second != 0:
			return fmt.Errorf("the interval %v has parts of a second", next.Interval)
		case next.Age < next.Interval:
			return fmt.Errorf("the age %v is less than the interval %v", next.Age, next.Interval)
		}
		if n := len(*t); n > 0 {
			switch last := (*t)[n-1]; {
			case next.Age <= last.Age:
				return fmt.Errorf("the age %v must be greater than %v, the one before it", next.Age, last.Age)
			case next.Interval <= last.Interval || next.Interval%last.Interval != 0:
				return fmt.Errorf("the interval %v must be a multiple of %v, the one before it", next.Interval, last.Interval)
			}
		}
		*t = append(*t, next)
	}
	return nil
}

func (t *thinning) String() string {
	var all []string
	for _, one := range *t {
		all = append(all, fmt.Sprintf("%v:%v", one.Age, one.Interval))
	}
	return strings.Join(all, ",")
}

func (t *thinning) Type() string { return "AGE:INTERVAL" }

func (t *thinning) UnmarshalJSON(text []byte) error { return unmarshalFlag("thin", t, text) }

// unmarshalFlag sets a field of a file as its flag.
func unmarshalFlag(name string, flag interface{ Set(string) error }, text []byte) error {
	var value string
	err := json.Unmarshal(text, &value)
	if err == nil {
		err = flag.Set(value)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", name, text, err)
	}
	return nil
}

// parse reads the settings from YAML. An error names the field.
func (s *syncSettings) parse(text []byte) error {
	text, err := onlyDocument(text)
	if err != nil {
		return err
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(converted, s)
	return errors.Join(append(strict[:min(1, len(strict))], err)...)
}

// onlyDocument returns the YAML document of a file that has one. Of several documents YAMLToJSONStrict would read the
// first.
func onlyDocument(text []byte) (only []byte, err error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		one, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil { // a directive, or a document on the line of its separator
			return text, nil
		}
		if content, err := yaml.YAMLToJSON(one); err == nil && string(content) == "null" {
			continue // comments
		}
		if only != nil {
			return nil, errors.New("it has several YAML documents: give one, with all resources")
		}
		only = one
	}
}

// syncResource selects objects of one type, and what is stored of them.
type syncResource struct {
	Resource      string   `json:"resource"`
	Namespace     string   `json:"namespace"` // empty: all
	Selector      string   `json:"selector"`
	FieldSelector string   `json:"fieldSelector"`
	Fields        []string `json:"fields"`
	Redact        []string `json:"redact"`
	Drop          []string `json:"drop"`
	MetadataOnly  bool     `json:"metadataOnly"`
	OtherEtcd     bool     `json:"otherEtcd"` // its revisions are never compared with those of the types before it

	group     string // of a pattern *.GROUP, otherwise empty
	all       bool   // the pattern is *
	name      string // of the only object, empty for all
	place     string // in messages: "resources[1]", or the type in the arguments; empty if it is the only one
	selection cluster.Selection
}

// complete returns the settings of the file or of the flags, checked as far as that is possible without a
// server.
func (o *syncOptions) complete(ctx context.Context, args []string) (*syncSettings, error) {
	settings := &o.settings
	var err error
	if o.file != "" {
		settings, err = o.readFile(ctx, args)
	} else {
		err = o.addArguments(args)
	}
	if err != nil {
		return nil, err
	}
	if err := o.checkSinks(settings); err != nil {
		return nil, err
	}
	return settings, settings.completeResources()
}

// checkSinks checks the sinks of the settings. An error about one of several names the file.
func (o *syncOptions) checkSinks(settings *syncSettings) error {
	err := settings.checkSinks()
	if err != nil && len(settings.Sinks) > 0 {
		return fmt.Errorf("%s: %w", o.file, err)
	}
	return err
}

// completeResources checks and parses the settings of the resources.
func (s *syncSettings) completeResources() error {
	for i := range s.Resources {
		r := &s.Resources[i]
		err := r.complete()
		if err == nil && r.pattern() && slices.ContainsFunc(s.Resources[:i], r.overlaps) {
			err = fmt.Errorf("%s of these namespaces are stored already: give each pattern once, or once for each namespace",
				r.Resource)
		}
		if err != nil {
			return r.at(err)
		}
	}
	return nil
}

// at adds the place of a resource to an error about it.
func (r *syncResource) at(err error) error {
	if r.place == "" {
		return err
	}
	return fmt.Errorf("%s: %w", r.place, err)
}

// overlaps reports whether a pattern is another one, too, in a namespace of that.
func (r *syncResource) overlaps(other syncResource) bool {
	return r.Resource == other.Resource && (r.Namespace == other.Namespace || r.Namespace == "" || other.Namespace == "")
}

// addArguments adds the types of the arguments to the settings of the flags.
func (o *syncOptions) addArguments(args []string) error {
	switch {
	case len(args) == 0:
		return errors.New("give the types of the resources, for example pods,deployments.apps, or a file with -f")
	case len(args) > 1:
		return fmt.Errorf("give the types as one argument, for example %s", strings.Join(args, ","))
	}
	o.resource.Selector, o.resource.FieldSelector = o.LabelSelector, o.FieldSelector
	for _, name := range strings.Split(args[0], ",") {
		r := o.resource
		r.Resource, r.place = name, name
		if strings.Contains(name, "/") {
			return fmt.Errorf("give types and not objects: %q", name)
		}
		o.settings.Resources = append(o.settings.Resources, r)
	}
	return nil
}

// readFile reads the file of -f. --to takes precedence over it.
func (o *syncOptions) readFile(ctx context.Context, args []string) (*syncSettings, error) {
	if len(args) > 0 || o.AllNamespaces || o.namespaceSet || o.LabelSelector != "" || o.FieldSelector != "" ||
		o.resource.set() || o.settings.given("state") != "" {
		return nil, errors.New(
			"with -f, the file has the types, namespaces, selectors, fields and the settings of the sink: remove them from the command line")
	}
	text, err := o.fileText(ctx)
	if err != nil {
		return nil, err
	}
	settings := &syncSettings{}
	if err := settings.parse(text); err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	if len(settings.Sinks) > 0 && (o.settings.To != "" || o.settings.State != "") {
		return nil, fmt.Errorf("%s has sinks: remove --to and --state from the command line", o.file)
	}
	settings.To = cmp.Or(o.settings.To, settings.To)
	settings.State = cmp.Or(o.settings.State, settings.State)
	if len(settings.Resources) == 0 {
		return nil, fmt.Errorf("%s: resources is empty", o.file)
	}
	for i := range settings.Resources {
		settings.Resources[i].place = fmt.Sprintf("%s: resources[%d]", o.file, i)
	}
	return settings, nil
}

// fileText returns the text of the file, or why ctx has ended: a terminal or a pipe may have no end. The process must
// end then.
func (o *syncOptions) fileText(ctx context.Context) ([]byte, error) {
	var text []byte
	var err error
	read := make(chan struct{})
	go func() {
		defer close(read)
		if o.file == "-" { // as kubectl's -f
			text, err = io.ReadAll(os.Stdin)
		} else {
			text, err = os.ReadFile(o.file)
		}
	}()
	select {
	case <-read:
		return text, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// set reports whether any setting of objects is given.
func (r *syncResource) set() bool {
	return len(r.Fields)+len(r.Redact)+len(r.Drop) > 0 || r.MetadataOnly
}

// complete checks and parses the settings.
func (r *syncResource) complete() error {
	if r.Resource == "" {
		return errors.New("the resource type is missing")
	}
	if err := r.parsePattern(); err != nil {
		return err
	}
	for _, part := range r.Drop {
		if part != "managedFields" {
			return fmt.Errorf("drop: only managedFields can be dropped, not %q", part)
		}
	}
	byLabel, err := labels.Parse(r.Selector)
	if err != nil {
		return fmt.Errorf("selector %q: %w", r.Selector, err)
	}
	byField, err := fields.ParseSelector(r.FieldSelector)
	if err != nil {
		return fmt.Errorf("fieldSelector %q: %w", r.FieldSelector, err)
	}
	r.selection = cluster.Selection{Labels: byLabel.String(), Fields: byField.String()}
	_, err = r.projection(false)
	return err
}

// projection returns what is stored of an object, nil for all of it. An error names a path.
func (r *syncResource) projection(secret bool) (*project.Projection, error) {
	return project.New(project.Options{Fields: r.Fields, Redact: r.Redact, Metadata: r.MetadataOnly, Secret: secret})
}

// pattern reports whether a resource is a pattern, which stands for several types.
func (r *syncResource) pattern() bool { return r.all || r.group != "" }

// parsePattern sets the group of a pattern.
func (r *syncResource) parsePattern() error {
	if r.Resource == "*" {
		r.all = true
		return nil
	}
	group, ok := strings.CutPrefix(r.Resource, "*.")
	if !strings.Contains(r.Resource, "*") {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(group); !ok || len(problems) > 0 {
		return fmt.Errorf(
			"%q is no pattern: *.GROUP, for example *.example.com, is every type of one API group, and * every type", r.Resource)
	}
	r.group = group
	return nil
}

// resolveAll finds the resources on the server, except for those of patterns.
func (o *syncOptions) resolveAll(ctx context.Context, resources []syncResource, namespace string,
	report *syncReport) (all []apitypes.Resource, err error) {
	var targets []*cluster.Target
	for i := range resources {
		r := &resources[i]
		if r.pattern() {
			continue
		}
		t, err := o.Resolve(ctx, report.start.retryRequest, cluster.TypeAndName{Kind: r.Resource, Name: r.name}, r.selection,
			"list", "watch")
		if err != nil {
			return nil, r.at(err)
		}
		if t.Namespaced {
			t.Namespace = cmp.Or(r.Namespace, namespace)
		}
		if err := o.checkTarget(t, targets); err != nil {
			return nil, exit.Usage(r.at(err))
		}
		targets = append(targets, t)
		resource := apitypes.Resource{Type: apitypes.Type{Resource: t.Resource, Shown: t.Shown}, Pinned: t.Pinned}
		if resource.Selection, err = r.selected(t.Namespace, t.IsSecret()); err != nil {
			return nil, err
		}
		report.resolved(t)
		all = append(all, resource)
	}
	return all, nil
}

// selected returns which objects are selected, and what is stored of them.
func (r *syncResource) selected(namespace string, secret bool) (apitypes.Selection, error) {
	s := apitypes.Selection{
		Namespace: namespace, LabelSelector: r.selection.Labels, FieldSelector: r.selection.Fields,
		MetadataOnly: r.MetadataOnly, DropManagedFields: len(r.Drop) > 0, OtherEtcd: r.OtherEtcd,
		Partial: len(r.Fields) > 0,
	}
	projection, err := r.projection(secret)
	if projection != nil {
		s.Project = projection.Apply
	}
	return s, err
}

// namespace returns the namespace of the flags, empty for all.
func (o *syncOptions) namespace() (string, error) {
	if o.AllNamespaces || o.file != "" {
		return "", nil
	}
	namespace, _, err := o.Config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// checkTarget checks a target that was resolved, and that it shares no objects with earlier ones.
func (o *syncOptions) checkTarget(t *cluster.Target, earlier []*cluster.Target) error {
	if t.IsSecret() && !o.includeSecrets {
		return errors.New(
			"secrets are stored only with --include-secrets: their values would be stored as plain text; --redact 'data.*' replaces them")
	}
	if slices.ContainsFunc(earlier, func(e *cluster.Target) bool {
		return e.Name() == t.Name() && (e.Namespace == t.Namespace || e.Namespace == "" || t.Namespace == "")
	}) {
		return fmt.Errorf("%s of these namespaces are stored already: give each type once, or once for each namespace",
			t.Name())
	}
	return nil
}
