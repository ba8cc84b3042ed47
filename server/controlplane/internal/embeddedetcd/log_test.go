package embeddedetcd

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"
)

// A fatal message of etcd becomes an error, and does not end the process.
func TestEtcdCannotEndTheProcess(t *testing.T) {
	for name, logFatal := range map[string]func(*zap.Logger){
		"fatal": func(l *zap.Logger) { l.Fatal("cannot continue", zap.Error(errors.New("disk\nbroken"))) },
		"panic": func(l *zap.Logger) { l.Panic("cannot continue", zap.Error(errors.New("disk\nbroken"))) },
	} {
		t.Run(name, func(t *testing.T) {
			log := newFatalLog()
			log.zap().Error("this is retried")
			if log.failed.Err() != nil {
				t.Fatal("an error below fatal ends etcd")
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				logFatal(log.zap())
				t.Error("the goroutine continues after the message")
			}()
			<-done
			log.fail(errors.New("a later error"))
			if got := context.Cause(log.failed).Error(); got != "cannot continue: disk broken" {
				t.Errorf("the cause is %q", got)
			}
		})
	}
}
