package builtin

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainers checks that a pod has a container, that names are unique, and each container.
func validateContainers(at *field.Path, spec *corev1.PodSpec, volumes map[string]bool) (errs field.ErrorList) {
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	names := map[string]bool{}
	check := func(at *field.Path, containers []corev1.Container) {
		for i, c := range containers {
			errs = append(errs, validateContainer(at.Index(i), &c, volumes)...)
			if names[c.Name] {
				errs = append(errs, field.Duplicate(at.Index(i).Child("name"), c.Name))
			}
			names[c.Name] = true
		}
	}
	check(at.Child("containers"), spec.Containers)
	check(at.Child("initContainers"), spec.InitContainers)
	return errs
}

func validateContainer(at *field.Path, c *corev1.Container, volumes map[string]bool) (errs field.ErrorList) {
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, invalids(at.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	if c.Image == "" {
		errs = append(errs, field.Required(at.Child("image"), ""))
	}
	errs = append(errs, oneOf(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, oneOf(at.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
		corev1.PullNever)...)
	errs = append(errs, validateContainerPorts(at.Child("ports"), c.Ports)...)
	errs = append(errs, validateEnv(at.Child("env"), c.Env)...)
	errs = append(errs, validateMounts(at.Child("volumeMounts"), c.VolumeMounts, volumes)...)
	return append(errs, validateResources(at.Child("resources"), &c.Resources)...)
}

func validateContainerPorts(at *field.Path, ports []corev1.ContainerPort) (errs field.ErrorList) {
	names := map[string]bool{}
	for i, p := range ports {
		here := at.Index(i)
		if p.Name != "" {
			invalid := invalids(here.Child("name"), p.Name, validation.IsValidPortName(p.Name))
			switch {
			case len(invalid) > 0:
				errs = append(errs, invalid...)
			case names[p.Name]:
				errs = append(errs, field.Duplicate(here.Child("name"), p.Name))
			}
			names[p.Name] = len(invalid) == 0
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(here.Child("containerPort"), ""))
		} else {
			errs = append(errs, invalids(here.Child("containerPort"), p.ContainerPort,
				validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, invalids(here.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, oneOf(here.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP,
			corev1.ProtocolUDP)...)
	}
	return errs
}

// validateEnv checks the names of environment variables, and that each has a value or one source.
func validateEnv(at *field.Path, vars []corev1.EnvVar) (errs field.ErrorList) {
	for i, v := range vars {
		here := at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(here.Child("name"), ""))
		} else {
			errs = append(errs, invalids(here.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name))...)
		}
		if v.ValueFrom == nil {
			continue
		}
		sources := 0
		for _, set := range []bool{v.ValueFrom.FieldRef != nil, v.ValueFrom.ResourceFieldRef != nil,
			v.ValueFrom.ConfigMapKeyRef != nil, v.ValueFrom.SecretKeyRef != nil, v.ValueFrom.FileKeyRef != nil} {
			if set {
				sources++
			}
		}
		at := here.Child("valueFrom")
		switch {
		case sources == 0:
			errs = append(errs,
				field.Invalid(at, "",
					"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
		case v.Value != "":
			errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
		case sources > 1:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

// validateMounts checks that each mount is of a volume of the pod, at a path of its own.
func validateMounts(at *field.Path, mounts []corev1.VolumeMount, volumes map[string]bool) (errs field.ErrorList) {
	paths := map[string]bool{}
	for i, m := range mounts {
		here := at.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(here.Child("name"), ""))
		}
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(here.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(here.Child("mountPath"), ""))
		}
		if paths[m.MountPath] {
			errs = append(errs, field.Invalid(here.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
	}
	return errs
}
