package controlplane

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
)

func tableColumns(gr schema.GroupResource) rest.TableConvertor {
	return rest.NewDefaultTableConvertor(gr)
}
