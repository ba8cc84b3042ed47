package kube

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// storeColumns stores the columns of a response, if it has them.
func (s *Source) storeColumns(columns []metav1.TableColumnDefinition) {
	if len(columns) > 0 {
		s.columns.Store(&columns)
	}
}

// lastColumns returns the columns of the newest response that had them.
func (s *Source) lastColumns() []metav1.TableColumnDefinition {
	if columns := s.columns.Load(); columns != nil {
		return *columns
	}
	return nil
}
