package webhook

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	protocol "github.com/cloudevents/sdk-go/v2/protocol/http"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Mode is how events are in a request. The set is closed: Structured, Binary, Batched.
type Mode int

// The modes of CloudEvents over HTTP.
const (
	// Structured sends one event as a JSON object with attributes and data.
	Structured Mode = iota
	// Binary sends one event with its attributes as headers, which are not signed, and its data as the body.
	Binary
	// Batched sends several events as a JSON array.
	Batched
)

var modes = [...]string{Structured: "structured", Binary: "binary", Batched: "batched"}

// ParseMode returns the mode of a name: structured, binary or batched. The empty name is structured.
func ParseMode(name string) (Mode, error) {
	for m, known := range modes {
		if name == known || name == "" {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("the mode must be structured, binary or batched, not %q", name)
}

// answer is the answer to a request.
type answer struct {
	status int
	wait   time.Duration // of Retry-After
	text   string        // the beginning of the body
}

func (a answer) String() string {
	if a.status == unsendable {
		return a.text
	}
	text := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	if a.text != "" {
		text += fmt.Sprintf(": %q", a.text)
	}
	return text
}

// maxAnswer bounds what is read of an answer, maxText what is reported of it.
const (
	maxAnswer = 64 << 10
	maxText   = 200
)

// send sends events in one request. An error is one of the connection. If there is no such request, the answer is
// unsendable.
func (r *Receiver) send(ctx context.Context, events []event.Event) (answer, error) {
	request, err := r.newRequest(ctx, events)
	if err != nil {
		return answer{status: unsendable, text: withoutAddress(err).Error()}, nil
	}
	response, err := r.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	// The status is the answer. A body that ends in the middle changes nothing.
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	text = bytes.TrimSpace(text[:min(len(text), maxText)])
	return answer{response.StatusCode, retryAfter(response.Header, time.Now()), string(text)}, nil
}

func (r *Receiver) newRequest(ctx context.Context, events []event.Event) (request *http.Request, err error) {
	switch r.options.Mode {
	case Batched:
		request, err = protocol.NewHTTPRequestFromEvents(ctx, r.address, events)
	case Structured:
		request, err = protocol.NewHTTPRequestFromEvent(binding.WithForceStructured(ctx), r.address, events[0])
	default:
		request, err = protocol.NewHTTPRequestFromEvent(binding.WithForceBinary(ctx), r.address, events[0])
	}
	if err != nil {
		return nil, err
	}
	encodeAttributes(request.Header)
	request.Header.Set("User-Agent", "keepwatch")
	if err := r.sign(request, events); err != nil {
		return nil, err
	}
	return request, checkHeader(request.Header)
}

// encodeAttributes encodes the attributes of an event in binary mode as the HTTP binding of CloudEvents says (3.1.3.2):
// a percent sign and two digits for each byte of a space, a quotation mark, a percent sign, and what is not printable
// ASCII. The library does not.
func encodeAttributes(header http.Header) {
	for name, values := range header {
		if !strings.HasPrefix(name, "Ce-") {
			continue
		}
		for i, value := range values {
			values[i] = percentEncode(value)
		}
	}
}

func percentEncode(value string) string {
	var b strings.Builder
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' || c == '"' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// checkHeader returns an error for a header that no client sends. It is not one of the connection.
func checkHeader(header http.Header) error {
	for name, values := range header {
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == '\x7f' }) {
				return fmt.Errorf("the header %s has a control character: %.100q", name, value)
			}
		}
	}
	return nil
}

// sign adds the headers of Standard Webhooks, if there is a key: an HMAC-SHA256 of id, time and body.
func (r *Receiver) sign(request *http.Request, events []event.Event) error {
	if len(r.options.Key) == 0 {
		return nil
	}
	body, err := request.GetBody()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	signer, err := webhooks.NewWebhookRaw(r.options.Key)
	if err != nil {
		return err
	}
	id, now := events[0].ID(), time.Now()
	if n := len(events); n > 1 {
		id += "+" + strconv.Itoa(n-1)
	}
	signature, err := signer.Sign(id, now, text)
	if err != nil {
		return err
	}
	request.Header.Set(webhooks.HeaderWebhookID, id)
	request.Header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(webhooks.HeaderWebhookSignature, signature)
	return nil
}

// size returns about how many bytes an event adds to a request.
func size(e event.Event) int { return len(e.DataEncoded) + 512 }
