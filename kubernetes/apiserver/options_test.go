package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestOptions(t *testing.T) {
	parse := func(flags ...string) (*Options, error) {
		o, set := NewOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(set)
		return o, set.Parse(flags)
	}
	o, err := parse()
	if err != nil || len(o.Validate()) > 0 || o.Reads != ReadsKeepwatch || o.EncodingsBudget.Value() != 1<<30 {
		t.Errorf("the defaults are %+v, %v, %v", o, err, o.Validate())
	}
	o, err = parse("--reads=upstream", "--watch-history=1Gi,1h", "--encodings-budget=300M")
	if err != nil || len(o.Validate()) > 0 || o.Reads != ReadsUpstream || o.EncodingsBudget.Value() != 300_000_000 {
		t.Errorf("the options are %+v, %v, %v", o, err, o.Validate())
	}
	if history := o.history(); history.WindowBytes != 1<<30 || history.WindowAge != time.Hour {
		t.Errorf("the history is %+v", history)
	}
	for flag, want := range map[string]string{
		"--reads=both":            `--reads="both": give keepwatch or upstream`,
		"--encodings-budget=0":    "--encodings-budget=0: give a size above zero, as in 1Gi",
		"--encodings-budget=-1Gi": "--encodings-budget=-1Gi: give a size above zero, as in 1Gi",
		"--encodings-budget=many": "quantities must match",
		"--watch-history=0":       `"0" is not a size or an age above zero`,
	} {
		o, err := parse(flag)
		if err == nil {
			for _, err = range o.Validate() {
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}
