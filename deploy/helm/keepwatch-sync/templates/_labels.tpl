{{- define "keepwatch-sync.selector" -}}
app.kubernetes.io/name: keepwatch-sync
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The name of what is not in the release's namespace: another namespace may have a release of the same name. */ -}}
{{- define "keepwatch-sync.global" -}}
{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- define "keepwatch-sync.labels" -}}
{{ include "keepwatch-sync.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* The file of keepwatch sync -f, as JSON. The defaults of to and retention are for one database, that of maxSize for a SQLite file. */ -}}
{{- define "keepwatch-sync.config" -}}
{{- $config := .Values.config -}}
{{- if $config.sinks -}}
{{- $config = omit $config "to" "retention" "maxSize" -}}
{{- else if not (regexMatch "^(sqlite|postgres|postgresql):" $config.to) -}}
{{- $config = omit $config "retention" "maxSize" -}}
{{- else if not $config.maxSize -}}
{{- $config = omit $config "maxSize" -}}
{{- if hasPrefix "sqlite:" $config.to -}}
{{- if ne .Values.storage.size "10Gi" }}{{ fail "give config.maxSize with storage.size, less than it: a full disk stores nothing" }}{{ end -}}
{{- $config = merge (dict "maxSize" "8Gi") $config -}}
{{- end -}}
{{- end -}}
{{- toJson $config -}}
{{- end }}

{{- /* The addresses of the sinks, as JSON. */ -}}
{{- define "keepwatch-sync.addresses" -}}
{{- $all := list -}}
{{- range (.Values.config.sinks | default (list .Values.config)) -}}
{{- $all = append $all .to -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{- /* Whether a sink has files, so that there is one pod with a volume. Otherwise there are two, of which a Lease elects one. */ -}}
{{- define "keepwatch-sync.file" -}}
{{- if regexMatch "\"(sqlite|files|https?):" (include "keepwatch-sync.addresses" .) }}true{{ end }}
{{- end }}

{{- /* The right to follow a type: TYPE[.VERSION][.GROUP], *.GROUP, or *, which has Secrets, too: RBAC cannot leave them out.
A rule needs the plural and the group; what has no group is of the core group, whose types stay the same. */}}
{{- define "keepwatch-sync.rule" }}
  {{- $core := list "*" "configmaps" "endpoints" "events" "limitranges" "namespaces" "nodes" "persistentvolumeclaims" "persistentvolumes" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "serviceaccounts" "services" }}
  {{- if eq . "secrets" }}
    {{- fail "config.resources: secrets are stored only with --include-secrets, which this chart does not give" }}
  {{- else if not (or (contains "." .) (has . $core)) }}
    {{- fail (printf "config.resources: %q is no type of the core group: give its plural and its group, deployments.apps for example, as kubectl api-resources has them" .) }}
  {{- end }}
  {{- $name := regexReplaceAll "^([^.]+)[.]v[0-9]+((alpha|beta)[0-9]+)?[.]" . "${1}." }}
  {{- $parts := splitn "." 2 $name }}
- apiGroups: [{{ if eq . "*" }}"*"{{ else }}{{ $parts._1 | default "" | quote }}{{ end }}]
  resources: [{{ $parts._0 | quote }}]
  verbs: [get, list, watch]
{{- end }}

{{- /* The bytes of a quantity, rounded up: 1.5Ti and 1536Gi, as the API server writes it, are the same. It writes 2.3Gi,
which has a fraction of a byte, as 2469606195200m. */ -}}
{{- define "keepwatch-sync.bytes" -}}
{{- $units := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- ceil (mulf (regexFind "^[0-9.]+" .) (get $units (regexFind "[A-Za-z]*$" .))) -}}
{{- end }}

{{- /* The volume of a StatefulSet cannot be changed. Helm would notice that when the Secret with the new file is written,
with which the old pod starts again. */ -}}
{{- define "keepwatch-sync.upgradable" -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace .Release.Name -}}
{{- $set := printf "the StatefulSet %s" $.Release.Name -}}
{{- $delete := printf "kubectl -n %s delete statefulset %s --cascade=orphan" $.Release.Namespace $.Release.Name -}}
{{- $claims := first (.spec.volumeClaimTemplates | default list) -}}
{{- $file := include "keepwatch-sync.file" $ -}}
{{- if and $file (not $claims) -}}
{{- fail (printf "%s has no volume, and config.to asks for one. Nothing is changed. Upgrade again after: %s" $set $delete) -}}
{{- else if and $claims (not $file) -}}
{{- fail (printf "%s has a volume, and config.to asks for none; what it has stored stays in the claim data-%s-0. Nothing is changed. Upgrade again after: %s" $set $.Release.Name $delete) -}}
{{- else if $claims -}}
{{- $class := $claims.spec.storageClassName | default "" -}}
{{- $size := $claims.spec.resources.requests.storage -}}
{{- $storage := $.Values.storage -}}
{{- if ne $class ($storage.className | default "") -}}
{{- fail (printf "%s has a volume of the class %q, and storage.className is %q. Nothing is changed: a claim keeps its class, so install another release" $set $class $storage.className) -}}
{{- else if ne (include "keepwatch-sync.bytes" $size) (include "keepwatch-sync.bytes" $storage.size) -}}
{{- fail (printf "%s has a volume of %s, and storage.size is %s. Nothing is changed. Enlarge the claim, and upgrade again after: kubectl -n %s patch pvc data-%s-0 -p '{\"spec\":{\"resources\":{\"requests\":{\"storage\":%q}}}}' && %s" $set $size $storage.size $.Release.Namespace $.Release.Name $storage.size $delete) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
