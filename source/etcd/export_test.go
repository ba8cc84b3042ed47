package etcd

// LimitMessages sets how many bytes a message may have.
func (s *Source) LimitMessages(bytes int) { s.maxMessage = bytes }
