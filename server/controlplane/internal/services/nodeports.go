package services

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// restoreNodePorts sets the node ports that a client has left out to what they were: of a port by its name, and of the
// health check.
func restoreNodePorts(s, old *corev1.Service) {
	if needsNodePorts(s) && needsNodePorts(old) {
		had, given := map[string]int32{}, nodePortsOf(s)
		for _, port := range old.Spec.Ports {
			had[port.Name] = port.NodePort
		}
		for i := range s.Spec.Ports {
			if port := &s.Spec.Ports[i]; port.NodePort == 0 && !slices.Contains(given, had[port.Name]) {
				port.NodePort = had[port.Name]
			}
		}
	}
	if NeedsHealthCheck(s) && NeedsHealthCheck(old) && s.Spec.HealthCheckNodePort == 0 {
		s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

// giveNodePorts takes node ports for a new Service. Ports with the same number and different protocols share one,
// unless the client wants others.
func giveNodePorts(c *choice, s *corev1.Service) error {
	if !usesNodePorts(s) {
		return nil
	}
	shared := map[int32]int32{}
	for i := range s.Spec.Ports {
		port := &s.Spec.Ports[i]
		if port.NodePort == 0 && !needsNodePorts(s) {
			continue
		}
		node := shared[port.Port]
		switch {
		case node == 0:
			if err := giveNodePort(c, s, i, wantedNodePort(s, port.Port)); err != nil {
				return err
			}
			shared[port.Port] = port.NodePort
		case port.NodePort == 0:
			port.NodePort = node
		case port.NodePort != node:
			if err := giveNodePort(c, s, i, port.NodePort); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveMissingNodePorts takes the node ports of an updated Service that it did not have.
func giveMissingNodePorts(c *choice, s, old *corev1.Service) error {
	if !usesNodePorts(s) {
		return nil
	}
	own := nodePortsOf(old)
	for i, port := range s.Spec.Ports {
		if port.NodePort == 0 && !needsNodePorts(s) || port.NodePort != 0 && slices.Contains(own, port.NodePort) {
			continue
		}
		if err := giveNodePort(c, s, i, port.NodePort); err != nil {
			return err
		}
		own = append(own, s.Spec.Ports[i].NodePort)
	}
	return nil
}

// giveNodePort takes the node port that is wanted for a port of a Service, or any if that is 0.
func giveNodePort(c *choice, s *corev1.Service, index int, wanted int32) (err error) {
	if wanted == 0 {
		if s.Spec.Ports[index].NodePort, err = c.nextPort(); err != nil && !isOfRequest(err) {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w", err))
		}
		return err
	}
	s.Spec.Ports[index].NodePort = wanted
	if err = c.takePort(wanted); err == nil || isOfRequest(err) {
		return err
	}
	return invalid(s, field.ErrorList{field.Invalid(field.NewPath("spec", "ports").Index(index).Child("nodePort"), wanted,
		err.Error())})
}

// giveHealthCheckPort takes the node port of health checks, unless the Service had one.
func giveHealthCheckPort(c *choice, s *corev1.Service, had bool) (err error) {
	wanted := s.Spec.HealthCheckNodePort
	if !NeedsHealthCheck(s) || had {
		return nil
	}
	if wanted == 0 {
		s.Spec.HealthCheckNodePort, err = c.nextPort()
	} else {
		err = c.takePort(wanted)
	}
	if err == nil || isOfRequest(err) {
		return err
	}
	if wanted == 0 {
		return apierrors.NewInternalError(fmt.Errorf("failed to allocate a HealthCheck NodePort %v: %w", wanted, err))
	}
	return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", wanted, err))
}

// wantedNodePort returns the first node port that a client wants for a port with this number, or 0.
func wantedNodePort(s *corev1.Service, number int32) int32 {
	for _, port := range s.Spec.Ports {
		if port.Port == number && port.NodePort != 0 {
			return port.NodePort
		}
	}
	return 0
}

func nodePortsOf(s *corev1.Service) (ports []int32) {
	for _, port := range s.Spec.Ports {
		if port.NodePort != 0 {
			ports = append(ports, port.NodePort)
		}
	}
	return ports
}
