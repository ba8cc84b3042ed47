package access

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// isOutage reports whether a review failed because the server did not answer: earlier reviews count then. A server that
// answers, be it 429 or 403, is there to judge the request itself. A gateway answers 502, 503 or 504 in place of a
// server that it does not reach, and a server that ends answers 503.
func isOutage(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		switch answer.Status().Code {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	_, noAnswer := errors.AsType[*url.Error](err)
	_, broken := errors.AsType[net.Error](err)
	return noAnswer || broken || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errSilent)
}

// IsUndecided reports whether an error of [Control.Caller] or [Control.Decide] may pass: the server has not answered
// the review, is too busy for it, or was not asked. Any other refusal of the review is final, as it is of a proxy
// without the right to it, and so is that the server knows nobody by the credentials.
func IsUndecided(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		code := answer.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusTooManyRequests
	}
	return err != nil && !errors.Is(err, errUnknown)
}

// once is a client that returns an answer 429 as it is. client-go's own repeats the request as the answer's Retry-After
// asks until the context ends, which then looks as if the server had not answered.
type once struct{ rest.Interface }

func (o once) Post() *rest.Request { return o.Interface.Post().MaxRetries(0) }
