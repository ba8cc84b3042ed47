package etcd

// LimitMessages bounds the size of a received message.
func (s *Source) LimitMessages(bytes int) { s.maxMessage = bytes }
