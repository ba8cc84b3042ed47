package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/sinks/internal/broker"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/shape"
)

// target is what an address and options say.
type target struct {
	options    []kgo.Opt // how to connect
	topic      broker.Template
	state      string // the state topic
	shape      shape.Shape
	partitions int32 // of topics that are made; -1: as the broker's configuration says
	replicas   int16 // of topics that are made; -1: as the broker's configuration says
}

// validName matches the names that Kafka accepts for topics, besides "." and "..".
var validName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// maxName is the number of bytes of the longest name, and hashed of the hexadecimal digits at the end of one that was
// too long.
const maxName, hashed = 249, 32

func parse(address string, options Options) (t target, err error) {
	a, err := broker.ParseAddress(address,
		"state", "shape", "partitions", "replicas", "tls", "ca", broker.PasswordFile)
	if err != nil {
		return t, err
	}
	if a.Path == "" {
		return t, errors.New("the address needs the topics, for example kafka://HOST/k8s.{resource}")
	}
	if t.topic, err = broker.ParseTemplate(a.Path, "resource", "namespace"); err != nil {
		return t, fmt.Errorf("the topics %w", err)
	}
	if t.state = a.Parameter("state"); t.state == "" {
		t.state = defaultState(t.topic)
	}
	if !validName.MatchString(t.topic.Expand(func(string) string { return "x" })) || !validName.MatchString(t.state) {
		return t, errors.New("the name of a topic has letters, digits, dots, - and _ only, and 249 of them at most")
	}
	if t.shape, err = a.Shape(options.Shape); err != nil {
		return t, err
	}
	partitions, err := number(a, "partitions", 10_000)
	if err != nil {
		return t, err
	}
	replicas, err := number(a, "replicas", 100)
	if err != nil {
		return t, err
	}
	t.partitions, t.replicas = int32(partitions), int16(replicas)
	t.options = []kgo.Opt{kgo.SeedBrokers(a.Servers...)}
	encrypted, err := a.TLS(options.TLS)
	if err != nil {
		return t, err
	}
	credentials, err := a.Credentials(options.Password)
	if err != nil {
		return t, err
	}
	if credentials != nil {
		if options.Password == nil && credentials.Empty() {
			return t, fmt.Errorf("the address has a user without a password: "+
				"give kafka://USER:PASSWORD@HOST, or the parameter %s", broker.PasswordFile)
		}
		t.options = append(t.options, kgo.SASL(mechanisms(credentials, encrypted != nil)...))
	}
	if encrypted != nil {
		t.options = append(t.options, kgo.DialTLSConfig(encrypted))
	}
	return t, nil
}

// mechanisms returns the SASL mechanisms of a user. The client uses the first one that the broker has.
func mechanisms(c *broker.Credentials, encrypted bool) []sasl.Mechanism {
	secret := func(context.Context) (scram.Auth, error) {
		password, err := c.Password()
		return scram.Auth{User: c.User, Pass: password}, err
	}
	last := plain.Plain(func(context.Context) (plain.Auth, error) {
		password, err := c.Password()
		return plain.Auth{User: c.User, Pass: password}, err
	})
	if !encrypted {
		last = unencrypted{last}
	}
	return []sasl.Mechanism{scram.Sha512(secret), scram.Sha256(secret), last}
}

// unencrypted is PLAIN without TLS. It sends the password to any broker that answers, so only one on this machine
// receives it.
type unencrypted struct{ sasl.Mechanism }

func (m unencrypted) Authenticate(ctx context.Context, server string) (sasl.Session, []byte, error) {
	if !localhost.Is(server) {
		return nil, nil, insecuref("%s has no SCRAM, and PLAIN would send it the password without encryption: "+
			"add tls=true or ca=FILE to the address", server)
	}
	return m.Mechanism.Authenticate(ctx, server)
}

// defaultState returns the name of the state topic of a template: keepwatch-k8s of k8s.{resource}.
func defaultState(t broker.Template) string {
	fixed := strings.Trim(t.Expand(func(string) string { return "" }), "._-")
	return strings.TrimSuffix("keepwatch-"+fixed, "-")
}

// number returns a parameter from 1 to most, or -1 without it.
func number(a broker.Address, name string, most int) (int, error) {
	text := a.Parameter(name)
	if text == "" {
		return -1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s must be 1 to %d, not %q", name, most, text)
	}
	return n, nil
}

// topicOf returns the topic of a stream. The namespace is that of the stream, and _ if it has all. A name that is too
// long ends with a hash of all of it: who may define types must not end a sync of all types.
func (t target) topicOf(id stream.Identity) string {
	name := t.topic.Expand(func(placeholder string) string {
		switch {
		case placeholder == "resource":
			return id.Resource
		case id.Namespace == "":
			return "_"
		}
		return id.Namespace
	})
	if len(name) <= maxName {
		return name
	}
	return fmt.Sprintf("%s-%x", name[:maxName-1-hashed], sha256.Sum256([]byte(name)))[:maxName]
}
