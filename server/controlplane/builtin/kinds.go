package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/keepwatch/keepwatch/server/controlplane/internal/services"
)

// all is the category of `kubectl get all`.
const all = "all"

// table lists the built-in kinds. Groups are in the order of discovery.
var table = []*kind{
	{gv: corev1.SchemeGroupVersion, resource: "namespaces", object: &corev1.Namespace{}, list: &corev1.NamespaceList{},
		short: []string{"ns"}, name: validation.ValidateNamespaceName,
		status: ownStatus, prepare: prepareNamespace, prepareUpdate: keepNamespaceFinalizers, fields: namespaceFields,
		returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "pods", object: &corev1.Pod{}, list: &corev1.PodList{},
		namespaced: true, short: []string{"po"}, category: all,
		status: ownStatus, counts: countSpec, prepare: preparePod, prepareUpdate: keepPodResources, fields: podFields,
		indexed: "spec.nodeName", prepareStatus: keepPodStatus, keptByStatus: []fieldpath.Path{
			fieldpath.MakePathOrDie("metadata", "deletionTimestamp"), fieldpath.MakePathOrDie("metadata", "ownerReferences")},
		returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "services", object: &corev1.Service{}, list: &corev1.ServiceList{},
		namespaced: true, short: []string{"svc"}, category: all, name: validation.NameIsDNSLabel,
		status: ownStatus, putCreates: true, prepareUpdate: prepareServiceUpdate, fields: serviceFields,
		indexes: services.Index(), path: "services/specs", returnsDeleted: true},
	//lint:ignore SA1019 deprecated, and served like by kube-apiserver
	{gv: corev1.SchemeGroupVersion, resource: "endpoints", object: &corev1.Endpoints{}, list: &corev1.EndpointsList{},
		namespaced: true, short: []string{"ep"}, putCreates: true, path: "services/endpoints"},
	{gv: corev1.SchemeGroupVersion, resource: "configmaps", object: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{},
		namespaced: true, short: []string{"cm"}},
	{gv: corev1.SchemeGroupVersion, resource: "secrets", object: &corev1.Secret{}, list: &corev1.SecretList{},
		namespaced: true, fields: secretFields},
	{gv: corev1.SchemeGroupVersion, resource: "serviceaccounts", object: &corev1.ServiceAccount{},
		list:       &corev1.ServiceAccountList{},
		namespaced: true, short: []string{"sa"}, returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "nodes", object: &corev1.Node{}, list: &corev1.NodeList{},
		short: []string{"no"}, status: givenStatus, prepare: prepareNode, fields: nodeFields, path: "minions"},
	{gv: corev1.SchemeGroupVersion, alias: eventsv1.SchemeGroupVersion, resource: "events", object: &corev1.Event{},
		list:       &corev1.EventList{},
		namespaced: true, short: []string{"ev"}, putCreates: true, fields: eventFields},
	{gv: corev1.SchemeGroupVersion, resource: "persistentvolumes", object: &corev1.PersistentVolume{},
		list:  &corev1.PersistentVolumeList{},
		short: []string{"pv"}, status: ownStatus, prepare: preparePersistentVolume, prepareStatus: setPhaseTransition,
		returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "persistentvolumeclaims", object: &corev1.PersistentVolumeClaim{},
		list:       &corev1.PersistentVolumeClaimList{},
		namespaced: true, short: []string{"pvc"}, status: ownStatus, prepare: preparePersistentVolumeClaim,
		prepareUpdate: preparePersistentVolumeClaimUpdate, returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "resourcequotas", object: &corev1.ResourceQuota{},
		list:       &corev1.ResourceQuotaList{},
		namespaced: true, short: []string{"quota"}, status: ownStatus, returnsDeleted: true},
	{gv: corev1.SchemeGroupVersion, resource: "limitranges", object: &corev1.LimitRange{}, list: &corev1.LimitRangeList{},
		namespaced: true, short: []string{"limits"}, putCreates: true},
	{gv: corev1.SchemeGroupVersion, resource: "replicationcontrollers", object: &corev1.ReplicationController{},
		list:       &corev1.ReplicationControllerList{},
		namespaced: true, short: []string{"rc"}, category: all, status: ownStatus, counts: countSpec,
		replicas: replicationControllerReplicas, fields: replicationControllerFields, path: "controllers"},
	{gv: corev1.SchemeGroupVersion, resource: "podtemplates", object: &corev1.PodTemplate{},
		list:       &corev1.PodTemplateList{},
		namespaced: true, counts: countContent, returnsDeleted: true},

	{gv: apiregistrationv1.SchemeGroupVersion, resource: "apiservices", object: &apiregistrationv1.APIService{},
		list:     &apiregistrationv1.APIServiceList{},
		category: "api-extensions", name: pathSegment, status: strictStatus, prepare: prepareAPIService,
		prepareUpdate: prepareAPIServiceUpdate, putNeedsVersion: true,
		path: "apiregistration.k8s.io/apiservices"},

	{gv: appsv1.SchemeGroupVersion, resource: "deployments", object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{},
		namespaced: true, short: []string{"deploy"}, category: all,
		status: ownStatus, counts: countSpecAndAnnotations, replicas: deploymentReplicas,
		prepareStatus: keepDeploymentLabels, keptByStatus: []fieldpath.Path{fieldpath.MakePathOrDie("metadata", "labels")}},
	{gv: appsv1.SchemeGroupVersion, resource: "replicasets", object: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{},
		namespaced: true, short: []string{"rs"}, category: all,
		status: ownStatus, counts: countSpec, replicas: replicaSetReplicas, fields: replicaSetFields},
	{gv: appsv1.SchemeGroupVersion, resource: "statefulsets", object: &appsv1.StatefulSet{},
		list:       &appsv1.StatefulSetList{},
		namespaced: true, short: []string{"sts"}, category: all, name: validation.NameIsDNSLabel,
		status: ownStatus, counts: countSpec, replicas: statefulSetReplicas},
	{gv: appsv1.SchemeGroupVersion, resource: "daemonsets", object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{},
		namespaced: true, short: []string{"ds"}, category: all, status: ownStatus, counts: countSpec},
	{gv: appsv1.SchemeGroupVersion, resource: "controllerrevisions", object: &appsv1.ControllerRevision{},
		list:       &appsv1.ControllerRevisionList{},
		namespaced: true},

	{gv: autoscalingv2.SchemeGroupVersion, alias: autoscalingv1.SchemeGroupVersion, resource: "horizontalpodautoscalers",
		object: &autoscalingv2.HorizontalPodAutoscaler{},
		list:   &autoscalingv2.HorizontalPodAutoscalerList{}, namespaced: true, short: []string{"hpa"}, category: all,
		status: ownStatus},

	{gv: batchv1.SchemeGroupVersion, resource: "jobs", object: &batchv1.Job{}, list: &batchv1.JobList{},
		namespaced: true, category: all, status: ownStatus, counts: countSpec, prepare: prepareJob, fields: jobFields},
	{gv: batchv1.SchemeGroupVersion, resource: "cronjobs", object: &batchv1.CronJob{}, list: &batchv1.CronJobList{},
		namespaced: true, short: []string{"cj"}, category: all, status: ownStatus, counts: countSpec},

	{gv: networkingv1.SchemeGroupVersion, resource: "ingresses", object: &networkingv1.Ingress{},
		list:       &networkingv1.IngressList{},
		namespaced: true, short: []string{"ing"}, status: ownStatus, counts: countSpec, path: "ingress"},
	{gv: networkingv1.SchemeGroupVersion, resource: "ingressclasses", object: &networkingv1.IngressClass{},
		list:   &networkingv1.IngressClassList{},
		counts: countSpec},
	{gv: networkingv1.SchemeGroupVersion, resource: "networkpolicies", object: &networkingv1.NetworkPolicy{},
		list:       &networkingv1.NetworkPolicyList{},
		namespaced: true, short: []string{"netpol"}, counts: countSpec},

	{gv: policyv1.SchemeGroupVersion, resource: "poddisruptionbudgets", object: &policyv1.PodDisruptionBudget{},
		list:       &policyv1.PodDisruptionBudgetList{},
		namespaced: true, short: []string{"pdb"}, status: ownStatus, counts: countSpec, putNeedsVersion: true},

	{gv: rbacv1.SchemeGroupVersion, resource: "roles", object: &rbacv1.Role{}, list: &rbacv1.RoleList{},
		namespaced: true, name: pathSegment, putCreates: true},
	{gv: rbacv1.SchemeGroupVersion, resource: "rolebindings", object: &rbacv1.RoleBinding{},
		list:       &rbacv1.RoleBindingList{},
		namespaced: true, name: pathSegment, putCreates: true},
	{gv: rbacv1.SchemeGroupVersion, resource: "clusterroles", object: &rbacv1.ClusterRole{},
		list: &rbacv1.ClusterRoleList{},
		name: pathSegment, putCreates: true},
	{gv: rbacv1.SchemeGroupVersion, resource: "clusterrolebindings", object: &rbacv1.ClusterRoleBinding{},
		list: &rbacv1.ClusterRoleBindingList{},
		name: pathSegment, putCreates: true},

	{gv: storagev1.SchemeGroupVersion, resource: "storageclasses", object: &storagev1.StorageClass{},
		list:  &storagev1.StorageClassList{},
		short: []string{"sc"}, returnsDeleted: true},
	{gv: storagev1.SchemeGroupVersion, resource: "volumeattachments", object: &storagev1.VolumeAttachment{},
		list:   &storagev1.VolumeAttachmentList{},
		status: strictStatus, putNeedsVersion: true, returnsDeleted: true},
	{gv: storagev1.SchemeGroupVersion, resource: "csinodes", object: &storagev1.CSINode{}, list: &storagev1.CSINodeList{},
		putNeedsVersion: true, returnsDeleted: true},
	{gv: storagev1.SchemeGroupVersion, resource: "csidrivers", object: &storagev1.CSIDriver{},
		list: &storagev1.CSIDriverList{}, putNeedsVersion: true, returnsDeleted: true},
	{gv: storagev1.SchemeGroupVersion, resource: "csistoragecapacities", object: &storagev1.CSIStorageCapacity{},
		list:       &storagev1.CSIStorageCapacityList{},
		namespaced: true, putNeedsVersion: true},

	{gv: schedulingv1.SchemeGroupVersion, resource: "priorityclasses", object: &schedulingv1.PriorityClass{},
		list:  &schedulingv1.PriorityClassList{},
		short: []string{"pc"}, counts: countCreation},
	{gv: certificatesv1.SchemeGroupVersion, resource: "certificatesigningrequests",
		object: &certificatesv1.CertificateSigningRequest{},
		list:   &certificatesv1.CertificateSigningRequestList{}, short: []string{"csr"}, name: anyName, status: ownStatus,
		fields: csrFields},
	{gv: coordinationv1.SchemeGroupVersion, resource: "leases", object: &coordinationv1.Lease{},
		list:       &coordinationv1.LeaseList{},
		namespaced: true, putCreates: true, putNeedsVersion: true},
	{gv: discoveryv1.SchemeGroupVersion, resource: "endpointslices", object: &discoveryv1.EndpointSlice{},
		list:       &discoveryv1.EndpointSliceList{},
		namespaced: true, counts: countContentAndLabels, prepare: prepareEndpointSlice,
		prepareUpdate: prepareEndpointSliceUpdate},
	{gv: nodev1.SchemeGroupVersion, resource: "runtimeclasses", object: &nodev1.RuntimeClass{},
		list:       &nodev1.RuntimeClassList{},
		putCreates: true, putNeedsVersion: true},

	{gv: resourcev1.SchemeGroupVersion, resource: "deviceclasses", object: &resourcev1.DeviceClass{},
		list:   &resourcev1.DeviceClassList{},
		counts: countSpec, returnsDeleted: true},
	{gv: resourcev1.SchemeGroupVersion, resource: "resourceclaims", object: &resourcev1.ResourceClaim{},
		list:       &resourcev1.ResourceClaimList{},
		namespaced: true, status: strictStatus, returnsDeleted: true},
	{gv: resourcev1.SchemeGroupVersion, resource: "resourceclaimtemplates", object: &resourcev1.ResourceClaimTemplate{},
		list:       &resourcev1.ResourceClaimTemplateList{},
		namespaced: true, returnsDeleted: true},
	{gv: resourcev1.SchemeGroupVersion, resource: "resourceslices", object: &resourcev1.ResourceSlice{},
		list:   &resourcev1.ResourceSliceList{},
		counts: countSpec, fields: resourceSliceFields, indexed: resourcev1.ResourceSliceSelectorNodeName,
		returnsDeleted: true},

	{gv: flowcontrolv1.SchemeGroupVersion, resource: "flowschemas", object: &flowcontrolv1.FlowSchema{},
		list:   &flowcontrolv1.FlowSchemaList{},
		status: strictStatus, counts: countSpec},
	{gv: flowcontrolv1.SchemeGroupVersion, resource: "prioritylevelconfigurations",
		object: &flowcontrolv1.PriorityLevelConfiguration{},
		list:   &flowcontrolv1.PriorityLevelConfigurationList{}, status: strictStatus, counts: countSpec},
	{gv: storagemigrationv1.SchemeGroupVersion, resource: "storageversionmigrations",
		object: &storagemigrationv1.StorageVersionMigration{},
		list:   &storagemigrationv1.StorageVersionMigrationList{}, status: strictStatus, putNeedsVersion: true},

	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingwebhookconfigurations",
		object:   &admissionregistrationv1.MutatingWebhookConfiguration{},
		list:     &admissionregistrationv1.MutatingWebhookConfigurationList{},
		category: "api-extensions", counts: countContent, putNeedsVersion: true},
	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "validatingwebhookconfigurations",
		object:   &admissionregistrationv1.ValidatingWebhookConfiguration{},
		list:     &admissionregistrationv1.ValidatingWebhookConfigurationList{},
		category: "api-extensions", counts: countContent, putNeedsVersion: true},
	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicies",
		object:   &admissionregistrationv1.ValidatingAdmissionPolicy{},
		list:     &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		category: "api-extensions", status: strictStatus, counts: countSpec, putNeedsVersion: true},
	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "validatingadmissionpolicybindings",
		object:   &admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
		list:     &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		category: "api-extensions", counts: countSpec, putNeedsVersion: true},
	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicies",
		object:   &admissionregistrationv1.MutatingAdmissionPolicy{},
		list:     &admissionregistrationv1.MutatingAdmissionPolicyList{},
		category: "api-extensions", counts: countSpec, putNeedsVersion: true},
	{gv: admissionregistrationv1.SchemeGroupVersion, resource: "mutatingadmissionpolicybindings",
		object:   &admissionregistrationv1.MutatingAdmissionPolicyBinding{},
		list:     &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
		category: "api-extensions", counts: countSpec, putNeedsVersion: true},
}
