package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/server/mux"
)

// advancePath is the path to which clients POST to advance the time of the simulation: ?by=90s. With RBAC they need the
// verb post on it.
const advancePath = "/keepwatch/simulation/advance"

// advancer answers requests for advancePath.
type advancer struct {
	simulation *Simulation // nil if the server runs none
	serializer runtime.NegotiatedSerializer
}

// advanced is the answer.
type advanced struct {
	// Time is the simulation's, after the advance.
	Time metav1.MicroTime `json:"time"`
}

// installAdvance serves advancePath. Without a simulation the server does not list it.
func (c *chain) installAdvance(to *mux.PathRecorderMux, serializer runtime.NegotiatedSerializer) {
	if c.workloads == nil {
		to.UnlistedHandle(advancePath, advancer{nil, serializer})
	} else {
		to.Handle(advancePath, advancer{c.options.Simulation, serializer})
	}
}

func (a advancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now, err := a.advance(r)
	if err != nil {
		if apierrors.IsMethodNotSupported(err) {
			w.Header().Set("Allow", http.MethodPost)
		}
		responsewriters.ErrorNegotiated(err, a.serializer, schema.GroupVersion{Version: "v1"}, w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(advanced{metav1.NewMicroTime(now)})
}

// advance does what a request asks for, and returns the simulation's time.
func (a advancer) advance(r *http.Request) (time.Time, error) {
	if a.simulation == nil {
		return time.Time{}, failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			"this server simulates no workloads: start keepwatch serve with --simulate, and with an etcd that it may write to")
	}
	if r.Method != http.MethodPost {
		return time.Time{}, failure(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the time is advanced by POST "+advancePath+"?by=90s")
	}
	given := r.URL.Query()["by"]
	if len(given) != 1 {
		return time.Time{},
			apierrors.NewBadRequest("give the duration by which to advance the time once, like ?by=90s or ?by=1h30m")
	}
	by, err := time.ParseDuration(given[0])
	if err != nil {
		return time.Time{},
			apierrors.NewBadRequest(fmt.Sprintf("by=%q is not a duration of up to 292 years: give one like 90s or 1h30m",
				given[0]))
	}
	now, err := a.simulation.Advance(by)
	if err != nil {
		return time.Time{}, apierrors.NewBadRequest(err.Error())
	}
	return now, nil
}

// failure returns an error with a Status.
func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: message}}
}
