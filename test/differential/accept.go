package differential

const (
	asTable   = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asList    = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// accept is any Accept header, most often one that clients send.
func (g *Generator) accept(stream bool) string {
	protobuf := protobufType
	if stream && g.chance(2) {
		protobuf += ";stream=watch"
	}
	switch n := g.random.IntN(100); {
	case n < 12:
		return ""
	case n < 42:
		return "application/json"
	case n < 58:
		return protobuf
	case n < 64:
		return pick(g.random, protobufType+",application/json", protobufType+", */*", "application/json, */*;q=0.1")
	case n < 74:
		return pick(g.random, asTable, asTable, asTable+",application/json",
			asTable+", application/json;as=Table;v=v1beta1;g=meta.k8s.io, application/json",
			"application/json;as=Table;v=v1beta1;g=meta.k8s.io")
	case n < 84:
		return pick(g.random, asPartial, asList, asPartial+",application/json", asList+", "+asPartial+", application/json",
			protobufType+";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", protobufType+
				";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
			"application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
			"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
			protobufType+";as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
			"application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
			asPartial+",application/yaml")
	case n < 88:
		return pick(g.random, "application/yaml", "application/yaml", "application/yaml;as=Table;v=v1;g=meta.k8s.io")
	case n < 91:
		return pick(g.random, "application/json;stream=watch", "application/json;pretty=1", "application/json;pretty=0",
			"application/json;charset=utf-8",
			"application/json;stream=nonsense")
	case n < 94:
		return pick(g.random, "application/json;q=0.5,application/yaml;q=0.9",
			"application/yaml;q=0.9, application/json;q=0.9", "text/html,application/json;q=0.9,*/*;q=0.8",
			"application/json;q=0", "*/*;q=0.5", "application/*", "text/*", "APPLICATION/JSON")
	default:
		return pick(g.random, "application/cbor", "application/cbor-seq", "application/json;q=0.9,application/cbor;q=1",
			"application/cbor,application/json", "text/plain", "application/xml",
			"application/json;as=Nonsense;v=v1;g=meta.k8s.io",
			"application/json;as=Table;v=v2;g=meta.k8s.io", "application/json;as=Table;v=v1;g=nonsense",
			"application/json;as=Table;v=v1", "application/json;nonsense=1",
			protobufType+";as=Table;v=v1;g=meta.k8s.io", "nonsense", ",", ";",
			"application/json;as=Table;g=meta.k8s.io;v=v1;includeObject=None")
	}
}
