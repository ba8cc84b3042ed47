package simulation

import (
	"context"
	"time"
)

func (c *Cluster) order(ctx context.Context, namespace, name string) (time.Time, error) {
	return time.Time{}, nil
}
func (c *Cluster) cover(ctx context.Context, namespace, name string) (time.Time, error) {
	return time.Time{}, nil
}
func (c *Cluster) work(ctx context.Context, namespace, name string) (time.Time, error) {
	return time.Time{}, nil
}
func (c *Cluster) bind(ctx context.Context, namespace, name string) (time.Time, error) {
	return time.Time{}, nil
}
