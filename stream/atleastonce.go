package stream

// NewAtLeastOnce returns a stream that continues from state and calls write with each piece, before it
// commits the piece to the state. It is for a consumer that stores no index: after a crash, or an error of
// write, the consumer may have any part of the piece, and receives it again with the same ids.
//
// The note that write returns, a text, is committed with the piece; [Committed] returns the last one.
// After an error of write the stream must not be used again.
func NewAtLeastOnce(state State, write func(Piece) (note string, err error), options Options) (*Stream, error) {
	d := &deliverer{State: state, write: write}
	return New(d, d, options)
}

// deliverer is the sink and the state of a stream whose consumer receives pieces. The messages of a delivery
// are written after its announcement and before its commit, as those of any sink.
type deliverer struct {
	State
	retained
	write func(Piece) (note string, err error)
}

func (d *deliverer) commit(c commit) (err error) {
	if c.position.Note, err = d.write(d.piece(c.position)); err != nil {
		return err
	}
	return d.State.commit(c)
}
