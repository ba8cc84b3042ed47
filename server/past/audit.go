package past

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// auditLog writes a line for each request, with its user, in the format of kube-apiserver's audit log. It is
// safe for concurrent use.
type auditLog struct {
	mu  sync.Mutex
	out io.Writer
}

// Annotations of an audit event.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	momentAnnotation   = "keepwatch.io/moment"
)

// write writes the line of a request, before it is answered. refused is why it will not be, nil if it will.
func (l *auditLog) write(q *http.Request, u user.Info, info *request.RequestInfo, moment string, refused error) error {
	if l == nil {
		return nil
	}
	now := metav1.NewMicroTime(time.Now().UTC())
	event := auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    auditv1.LevelMetadata, AuditID: uuid.NewUUID(), Stage: auditv1.StageResponseStarted,
		RequestURI: q.RequestURI, Verb: info.Verb, UserAgent: q.UserAgent(), SourceIPs: sourceOf(q),
		RequestReceivedTimestamp: now, StageTimestamp: now, Annotations: map[string]string{decisionAnnotation: "allow"},
	}
	if u != nil {
		event.User = authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	}
	if info.IsResourceRequest {
		event.ObjectRef = &auditv1.ObjectReference{
			Resource: info.Resource, Namespace: info.Namespace, Name: info.Name, APIGroup: info.APIGroup,
			APIVersion: info.APIVersion, Subresource: info.Subresource,
		}
	}
	if moment != "" {
		event.Annotations[momentAnnotation] = moment
	}
	if refused != nil {
		status := statusOf(refused)
		event.Stage, event.ResponseStatus = auditv1.StageResponseComplete, &metav1.Status{Code: status.Code,
			Reason: status.Reason, Message: status.Message}
		if status.Code == http.StatusForbidden || status.Code == http.StatusUnauthorized {
			event.Annotations[decisionAnnotation] = "forbid"
		}
	}
	line, err := json.Marshal(event)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.out.Write(append(line, '\n'))
	return err
}

func sourceOf(q *http.Request) []string {
	host, _, err := net.SplitHostPort(q.RemoteAddr)
	if err != nil {
		return nil
	}
	return []string{host}
}
