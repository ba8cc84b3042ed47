package webhook

// NewTransport is newTransport, for a test with a certificate of its own.
var NewTransport = newTransport
