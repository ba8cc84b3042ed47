package apiserver

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// versionPriorities returns the order of built-in API versions in discovery, and the versions that have
// an APIService. It is kube-apiserver's, which has no exported name.
func versionPriorities() map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	all := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	maps.Copy(all, map[schema.GroupVersion]controlplaneapiserver.APIServicePriority{
		{Group: "", Version: "v1"}:                        {Group: 18000, Version: 1},
		{Group: "apps", Version: "v1"}:                    {Group: 17800, Version: 15},
		{Group: "autoscaling", Version: "v1"}:             {Group: 17500, Version: 15},
		{Group: "autoscaling", Version: "v2"}:             {Group: 17500, Version: 30},
		{Group: "autoscaling", Version: "v2beta1"}:        {Group: 17500, Version: 9},
		{Group: "autoscaling", Version: "v2beta2"}:        {Group: 17500, Version: 1},
		{Group: "batch", Version: "v1"}:                   {Group: 17400, Version: 15},
		{Group: "batch", Version: "v1beta1"}:              {Group: 17400, Version: 9},
		{Group: "batch", Version: "v2alpha1"}:             {Group: 17400, Version: 9},
		{Group: "networking.k8s.io", Version: "v1"}:       {Group: 17200, Version: 15},
		{Group: "networking.k8s.io", Version: "v1beta1"}:  {Group: 17200, Version: 9},
		{Group: "policy", Version: "v1"}:                  {Group: 17100, Version: 15},
		{Group: "policy", Version: "v1beta1"}:             {Group: 17100, Version: 9},
		{Group: "storage.k8s.io", Version: "v1"}:          {Group: 16800, Version: 15},
		{Group: "storage.k8s.io", Version: "v1beta1"}:     {Group: 16800, Version: 9},
		{Group: "storage.k8s.io", Version: "v1alpha1"}:    {Group: 16800, Version: 1},
		{Group: "scheduling.k8s.io", Version: "v1"}:       {Group: 16600, Version: 15},
		{Group: "scheduling.k8s.io", Version: "v1beta1"}:  {Group: 16600, Version: 9},
		{Group: "scheduling.k8s.io", Version: "v1alpha3"}: {Group: 16600, Version: 3},
		{Group: "node.k8s.io", Version: "v1"}:             {Group: 16300, Version: 15},
		{Group: "node.k8s.io", Version: "v1alpha1"}:       {Group: 16300, Version: 1},
		{Group: "node.k8s.io", Version: "v1beta1"}:        {Group: 16300, Version: 9},
		{Group: "resource.k8s.io", Version: "v1"}:         {Group: 16200, Version: 21},
		{Group: "resource.k8s.io", Version: "v1beta2"}:    {Group: 16200, Version: 15},
		{Group: "resource.k8s.io", Version: "v1beta1"}:    {Group: 16200, Version: 9},
		{Group: "resource.k8s.io", Version: "v1alpha3"}:   {Group: 16200, Version: 1},
		{Group: "lifecycle.k8s.io", Version: "v1alpha1"}:  {Group: 15700, Version: 1},
	})
	return all
}
