package builtin

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateConfigMap checks the keys of both maps, and the size of their values.
func validateConfigMap(c *corev1.ConfigMap) (errs field.ErrorList) {
	size := 0
	for key, value := range c.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalids(at, key, validation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, invalids(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

// validateSecret checks the keys, the size of the values, and what the Secret's type requires.
func validateSecret(s *corev1.Secret) (errs field.ErrorList) {
	data := field.NewPath("data")
	size := 0
	for key, value := range s.Data {
		errs = append(errs, invalids(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	missing := func(key string) bool { _, ok := s.Data[key]; return !ok }
	require := func(key string) { errs = append(errs, field.Required(data.Key(key), "")) }
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		errs = append(errs, validateDockerConfig(s, corev1.DockerConfigKey)...)
	case corev1.SecretTypeDockerConfigJson:
		errs = append(errs, validateDockerConfig(s, corev1.DockerConfigJsonKey)...)
	case corev1.SecretTypeBasicAuth:
		if missing(corev1.BasicAuthUsernameKey) && missing(corev1.BasicAuthPasswordKey) {
			require(corev1.BasicAuthUsernameKey)
			require(corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			require(corev1.SSHAuthPrivateKey)
		}
	case corev1.SecretTypeTLS:
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if missing(key) {
				require(key)
			}
		}
	}
	return errs
}

// validateDockerConfig returns an error if a key does not have a JSON object.
func validateDockerConfig(s *corev1.Secret, key string) field.ErrorList {
	at := field.NewPath("data").Key(key)
	value, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(at, "")}
	}
	if err := json.Unmarshal(value, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(at, "<secret contents redacted>", err.Error())}
	}
	return nil
}
