package columns

import (
	"github.com/keepwatch/keepwatch/server/readpath"
)

// unreadMetadata are the fields of any object's message that no row reads: its managed fields, half of many objects.
var unreadMetadata = readpath.Fields{1: {17: nil}}

// UnreadOfPods are the fields of a pod's message that neither these rows nor those of Kubernetes' printer read, by the
// numbers in k8s.io/api/core/v1/generated.proto. Fields that are new there are read.
var UnreadOfPods = readpath.Fields{
	1: {11: nil, 12: nil, 13: nil, 14: nil, 17: nil}, // labels, annotations, ownerReferences, finalizers, managedFields
	2: { // spec
		1:  nil,                    // volumes
		2:  unreadOfContainer,      // containers
		18: nil,                    // affinity
		20: unreadOfContainer,      // initContainers
		22: nil,                    // tolerations
		33: nil,                    // topologySpreadConstraints
		34: {1: unreadOfContainer}, // ephemeralContainers
	},
	3: { // status
		8:  unreadOfStatus, // containerStatuses
		10: unreadOfStatus, // initContainerStatuses
		13: unreadOfStatus, // ephemeralContainerStatuses
	},
}

// unreadOfContainer leaves a container its name and restart policy, among others.
var unreadOfContainer = readpath.Fields{
	2: nil, 3: nil, 4: nil, 5: nil, // image, command, args, workingDir
	6: nil, 7: nil, 8: nil, 9: nil, // ports, env, resources, volumeMounts
	10: nil, 11: nil, 12: nil, 13: nil, // livenessProbe, readinessProbe, lifecycle, terminationMessagePath
	14: nil, 15: nil, 19: nil, 20: nil, // imagePullPolicy, securityContext, envFrom, terminationMessagePolicy
	22: nil, // startupProbe
}

// unreadOfStatus leaves a container's status its states, among others.
var unreadOfStatus = readpath.Fields{
	6: nil, 7: nil, 8: nil, // image, imageID, containerID
	10: nil, 11: nil, // allocatedResources, resources
}
