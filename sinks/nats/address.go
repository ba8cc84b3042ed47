package nats

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream/shape"
)

// target is what an address and options say.
type target struct {
	servers     string // as nats.Connect takes them
	options     []nats.Option
	credentials *broker.Credentials // nil: none
	stream      string              // empty: the bucket is the sink
	subject     broker.Template
	bucket      string
	shape       shape.Shape // of the messages
	replicas    int
}

// placeholders are those of the template of subjects.
var placeholders = []string{"resource", "namespace", "name", "type"}

func parse(address string, options Options) (t target, err error) {
	a, err := broker.ParseAddress(address,
		"subject", "shape", "kv", "replicas", "creds", "tls", "ca", broker.PasswordFile)
	if err != nil {
		return t, err
	}
	if t.credentials, err = a.Credentials(options.Password); err != nil {
		return t, err
	}
	encrypted, err := encryption(a, options.TLS)
	if err != nil {
		return t, err
	}
	if encrypted != nil {
		t.options = append(t.options, nats.Secure(encrypted))
	}
	for i, host := range a.Servers {
		a.Servers[i] = a.Scheme + "://" + host
	}
	t.servers = strings.Join(a.Servers, ",")
	if file := a.Parameter("creds"); file != "" {
		t.options = append(t.options, nats.UserCredentials(file))
	}
	if file := a.Parameter("ca"); file != "" {
		t.options = append(t.options, nats.RootCAs(file)) // is read at each connection
	}
	t.replicas = 1
	if text := a.Parameter("replicas"); text != "" {
		if t.replicas, err = strconv.Atoi(text); err != nil || t.replicas < 1 || t.replicas > 5 {
			return t, fmt.Errorf("replicas must be 1 to 5, not %q", text)
		}
	}
	t.stream, t.bucket = a.Path, a.Parameter("kv")
	switch {
	case t.stream == "" && t.bucket == "":
		return t, errors.New("the address needs a stream, nats://HOST/STREAM, or a bucket, nats://HOST/?kv=BUCKET")
	case t.stream != "" && t.bucket != "":
		return t, errors.New("the address has a stream and a bucket: give one of them")
	case t.bucket != "" && a.Parameter("subject") != "":
		return t, errors.New("a bucket has no subject: its keys are RESOURCE.NAMESPACE.NAME")
	case t.bucket != "" && (a.Parameter("shape") != "" || options.Shape != shape.Events):
		return t, errors.New("a bucket has no shape: its values are the objects")
	case !validName(t.stream) || !validName(t.bucket):
		return t, errors.New("the name of a stream or a bucket has letters, digits, - and _ only")
	case t.bucket != "":
		return t, nil
	}
	if t.shape, err = a.Shape(options.Shape); err != nil {
		return t, err
	}
	t.bucket = "keepwatch-" + t.stream
	text := a.Parameter("subject")
	if text == "" {
		text = t.stream + ".{resource}.{namespace}.{name}"
	}
	if t.subject, err = broker.ParseTemplate(text, placeholders...); err != nil {
		return t, fmt.Errorf("the subject %w", err)
	}
	return t, checkSubject(t.filter())
}

// encryption returns the settings of TLS, nil if the server decides about it. With a user of another machine's server
// TLS is required: the client sends the password to any server that says it needs none.
func encryption(a broker.Address, given *tls.Config) (*tls.Config, error) {
	config, err := a.TLS(given)
	elsewhere := slices.ContainsFunc(a.Servers, func(s string) bool { return !localhost.Is(s) })
	if err != nil || config != nil || a.User == nil || !elsewhere {
		return config, err
	}
	if a.Parameter("tls") == "false" {
		return nil, errors.New("the address has a user, and tls=false: the password would be sent without encryption")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12}, nil
}

// name names the sink for people.
func (t target) name() string {
	if t.stream == "" {
		return "bucket " + t.bucket
	}
	return "stream " + t.stream
}

// filter is the subject of all messages: a token with a placeholder is *.
func (t target) filter() string {
	tokens := strings.Split(t.subject.Expand(func(string) string { return "\x00" }), ".")
	for i, token := range tokens {
		if strings.Contains(token, "\x00") {
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

func checkSubject(filter string) error {
	for i, token := range strings.Split(filter, ".") {
		switch {
		case token == "" || token != "*" && strings.ContainsAny(token, "*> \t\r\n"):
			return fmt.Errorf("the subject has an empty part, a wildcard or a space: %q", filter)
		case i == 0 && (token == "*" || strings.HasPrefix(token, "$") || strings.HasPrefix(token, "_")):
			return errors.New("the subject must begin with a name of its own, for example k8s.{resource}.{namespace}.{name}")
		}
	}
	return nil
}

func validName(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}
