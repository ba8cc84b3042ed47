package follow

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/internal/bytesize"
	"github.com/keepwatch/keepwatch/sinks/files"
	"github.com/keepwatch/keepwatch/sinks/kafka"
	"github.com/keepwatch/keepwatch/sinks/nats"
	"github.com/keepwatch/keepwatch/sinks/postgres"
	"github.com/keepwatch/keepwatch/sinks/sqlite"
	"github.com/keepwatch/keepwatch/sinks/statedir"
	"github.com/keepwatch/keepwatch/sinks/webhook"
	"github.com/keepwatch/keepwatch/stream/shape"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// sinkSettings are where changes are stored, and how.
type sinkSettings struct {
	Name       string    `json:"name"` // in messages and metrics; default: the scheme of To
	To         string    `json:"to"`
	State      string    `json:"state"`
	Retention  retention `json:"retention"`
	Thin       thinning  `json:"thin"`
	MaxSize    string    `json:"maxSize"`
	Shape      string    `json:"shape"`
	RotateSize string    `json:"rotateSize"`
	RotateAge  timeSpan  `json:"rotateAge"`
	Compress   string    `json:"compress"`
	Mode       string    `json:"mode"`
	SigningKey string    `json:"signingKey"`
}

// database is a sink that shows its status.
type database interface {
	sink.Sink
	sink.Reader
}

const addresses = "sqlite:FILE, postgres://USER@HOST/DATABASE, files:DIRECTORY, https://HOST/PATH, " +
	"kafka://HOST/TOPICS or nats://HOST/STREAM"

// sinkCallbacks are called by a sink that repeats its own requests, has dead letters, or deletes states. Each may be
// nil.
type sinkCallbacks struct {
	retrying func(err error, wait time.Duration) // is called with each failure, and the wait before the next attempt
	refused  func(err error)                     // is called with the reason of each dead letter
	expired  func(sink.Expiry)                   // is called with the states that were deleted
}

// open returns the sink of --to. It connects to nothing. If the process was elected, no other one may write.
func (s *sinkSettings) open(elected bool, callbacks sinkCallbacks) (database, error) {
	scheme, rest, _ := strings.Cut(s.To, ":")
	local := rest != "" && !strings.HasPrefix(rest, "//")
	switch {
	case s.To == "":
		return nil, errors.New("give the database with --to: " + addresses)
	case scheme == "sqlite" && local:
		return s.openSQLite(rest, callbacks)
	case scheme == "sqlite":
		return nil, errors.New("--to sqlite: needs the path of a file, for example sqlite:state.db")
	case scheme == "postgres" || scheme == "postgresql":
		return s.openPostgres(elected, callbacks)
	case scheme == "files" && local:
		return s.openFiles(rest)
	case scheme == "files":
		return nil, errors.New("--to files: needs the path of a directory, for example files:changes")
	case scheme == "https" || scheme == "http":
		return s.openHTTP(callbacks)
	case scheme == "kafka" || scheme == "nats":
		return s.openBroker(scheme)
	}
	// The text may contain a password.
	return nil, errors.New("the database of --to must be " + addresses)
}

// openPostgres returns the sink of a Postgres schema.
func (s *sinkSettings) openPostgres(elected bool, callbacks sinkCallbacks) (database, error) {
	if err := s.checkThin(); err != nil {
		return nil, err
	}
	size, err := parseSize("the size of a database", s.MaxSize)
	if err != nil {
		return nil, err
	}
	options := postgres.Options{
		Retention: s.Retention.all, RetentionOf: s.Retention.of, Thin: s.Thin, MaxSize: size, TakeOver: elected,
		Expired: callbacks.expired,
	}
	return postgres.New(s.To, options), s.allow("retention", "thin", "max-size")
}

// checkThin checks that states are old enough to be thinned out before they are deleted.
func (s *sinkSettings) checkThin() error {
	for _, t := range s.Thin {
		if retention := s.Retention.all; retention > 0 && retention <= t.Age {
			return fmt.Errorf("--retention %v deletes states before --thin thins them out, after %v", retention, t.Age)
		}
	}
	return nil
}

// openSQLite returns the sink of a SQLite file.
func (s *sinkSettings) openSQLite(path string, callbacks sinkCallbacks) (_ database, err error) {
	if err := s.checkThin(); err != nil {
		return nil, err
	}
	options := sqlite.Options{Retention: s.Retention.all, RetentionOf: s.Retention.of, Thin: s.Thin,
		Expired: callbacks.expired}
	if options.MaxSize, err = parseSize("the size of a database", s.MaxSize); err != nil {
		return nil, err
	}
	return sqlite.New(path, options), s.allow("retention", "thin", "max-size")
}

// parseSize parses a number of bytes, such as 256Mi. Without a text it is 0.
func parseSize(what, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := bytesize.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return size, nil
}

// openFiles returns the sink of a directory. Its state is in the directory, unless --state names another one.
func (s *sinkSettings) openFiles(dir string) (_ database, err error) {
	options := files.Options{MaxAge: s.RotateAge.Duration}
	if options.Shape, err = shape.Parse(s.Shape); err != nil {
		return nil, err
	}
	if options.Compression, err = files.ParseCompression(s.Compress); err != nil {
		return nil, err
	}
	if options.MaxSize, err = parseSize("the size of files", s.RotateSize); err != nil {
		return nil, err
	}
	state := s.State
	if state == "" {
		state = filepath.Join(dir, "state")
	}
	return statedir.New(state, files.New(dir, options)), s.allow("state", "shape", "rotate-size", "rotate-age", "compress")
}

// openHTTP returns the sink of an HTTP server.
func (s *sinkSettings) openHTTP(callbacks sinkCallbacks) (_ database, err error) {
	if s.State == "" {
		return nil, errors.New("give the directory for the cursors with --state: an HTTP server does not store them")
	}
	options := webhook.Options{
		DeadLetters: filepath.Join(s.State, "dead-letters.ndjson"), Retrying: callbacks.retrying, Refused: callbacks.refused,
	}
	if options.Shape, err = shape.Parse(s.Shape); err != nil {
		return nil, err
	}
	if options.Mode, err = webhook.ParseMode(s.Mode); err != nil {
		return nil, err
	}
	if s.SigningKey != "" {
		if options.Key, err = readKey(s.SigningKey); err != nil {
			return nil, err
		}
	}
	receiver, err := webhook.New(s.To, options)
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return statedir.New(s.State, receiver), s.allow("state", "shape", "mode", "signing-key")
}

// openBroker returns the sink of a broker.
func (s *sinkSettings) openBroker(scheme string) (_ database, err error) {
	var in shape.Shape
	if s.Shape != "" {
		if err := s.checkShape(); err != nil {
			return nil, err
		}
		if in, err = shape.Parse(s.Shape); err != nil {
			return nil, err
		}
	}
	var target database
	if scheme == "kafka" {
		target, err = kafka.New(s.To, kafka.Options{Shape: in})
	} else {
		target, err = nats.New(s.To, nats.Options{Shape: in})
	}
	if err != nil {
		return nil, fmt.Errorf("--to: %w", err)
	}
	return target, s.allow("shape")
}

// checkShape returns an error for an address that says the shape, too, or that has none.
func (s *sinkSettings) checkShape() error {
	_, text, _ := strings.Cut(s.To, "?")
	parameters, _ := url.ParseQuery(text) // the sink returns the error
	switch {
	case parameters.Has("shape"):
		return errors.New("the address has the parameter shape, and there is --shape: give one of them")
	case parameters.Has("kv"):
		return errors.New("a bucket has no shape: its values are the objects")
	}
	return nil
}

// readKey reads a key as Standard Webhooks writes it: 24 bytes or more in base64, with or without the prefix whsec_.
func readKey(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--signing-key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(string(text)), "whsec_"))
	if err != nil || len(key) < 24 {
		return nil, fmt.Errorf("--signing-key: %s must have 24 bytes or more in base64, as of: openssl rand -base64 32", path)
	}
	return key, nil
}

// given returns the name of a setting that is given, besides To and the exceptions, or "".
func (s *sinkSettings) given(except ...string) string {
	for _, setting := range []struct {
		name  string
		given bool
	}{
		{"retention", s.Retention.String() != ""}, {"thin", len(s.Thin) > 0}, {"max-size", s.MaxSize != ""},
		{"shape", s.Shape != ""}, {"rotate-size", s.RotateSize != ""},
		{"rotate-age", s.RotateAge.Duration != 0}, {"compress", s.Compress != ""}, {"mode", s.Mode != ""},
		{"signing-key", s.SigningKey != ""}, {"state", s.State != ""},
	} {
		if setting.given && !slices.Contains(except, setting.name) {
			return setting.name
		}
	}
	return ""
}

// allow returns an error for a setting that the sink does not have.
func (s *sinkSettings) allow(names ...string) error {
	if name := s.given(names...); name != "" {
		scheme, _, _ := strings.Cut(s.To, ":")
		return fmt.Errorf("--%s is not for %s: its settings are --%s", name, scheme, strings.Join(names, ", --"))
	}
	return nil
}
