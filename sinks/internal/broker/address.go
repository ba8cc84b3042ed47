package broker

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/keepwatch/keepwatch/stream/shape"
)

// Address is the address of a broker: SCHEME://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/PATH?PARAMETERS.
type Address struct {
	Scheme     string
	Servers    []string // HOST or HOST:PORT
	User       *url.Userinfo
	Path       string // without its first slash
	parameters url.Values
}

// ParseAddress parses an address whose parameters are among the known ones. No error has a part of the
// text in front of the path, which may contain a password.
func ParseAddress(text string, known ...string) (Address, error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return Address{}, errors.New("the address has no ://")
	}
	a := Address{Scheme: scheme}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	// A parser of URLs accepts one host only.
	authority, tail := rest[:end], rest[end:]
	hosts := authority
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		hosts = authority[at+1:]
		u, err := url.Parse(scheme + "://" + authority[:at] + "@host")
		if err != nil || u.User == nil { // a # in it begins a fragment
			return Address{}, errors.New("the user or the password of the address must be percent-encoded")
		}
		a.User = u.User
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if u, err := url.Parse(scheme + "://" + host); err != nil || u.Hostname() == "" || u.Path != "" {
			return Address{}, errors.New("the address has no valid host: give HOST:PORT, or several of them with commas")
		}
		a.Servers = append(a.Servers, host)
	}
	if strings.ContainsAny(tail, "@#") { // of a password with / or ?, or of a path
		return Address{}, errors.New("/, ?, # and @ in a user, a password, a path or a parameter must be percent-encoded")
	}
	u, err := url.Parse("x://host" + tail)
	if err != nil {
		return Address{}, fmt.Errorf("the path and the parameters %q: a character must be percent-encoded", tail)
	}
	a.Path = strings.TrimPrefix(u.Path, "/")
	if a.parameters, err = url.ParseQuery(u.RawQuery); err != nil {
		return Address{}, fmt.Errorf("the parameters %q: a character must be percent-encoded", u.RawQuery)
	}
	for name, values := range a.parameters {
		if !slices.Contains(known, name) {
			return Address{}, fmt.Errorf("the parameter %q is not known: the parameters are %s", name, strings.Join(known, ", "))
		}
		if len(values) > 1 {
			return Address{}, fmt.Errorf("the parameter %s is given more than once", name)
		}
	}
	return a, nil
}

// Shape returns the given shape, or that of the parameter shape, which command lines of earlier versions have.
func (a Address) Shape(given shape.Shape) (shape.Shape, error) {
	named, err := shape.Parse(a.Parameter("shape"))
	switch {
	case err != nil || given == shape.Events:
		return named, err
	case a.Parameter("shape") != "" && named != given:
		return given, fmt.Errorf("the address has shape=%v, and the options have %v: give one of them", named, given)
	}
	return given, nil
}

// Parameter returns the value of a parameter, empty without one.
func (a Address) Parameter(name string) string { return a.parameters.Get(name) }
