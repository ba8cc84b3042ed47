{{- define "keepwatch-sync.selector" -}}
app.kubernetes.io/name: keepwatch-sync
app.kubernetes.io/instance: {{ .Release.Name }}
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

{{- /* The right to follow a type: TYPE[.VERSION][.GROUP], *.GROUP, or *, which has Secrets, too: RBAC cannot leave them out. */}}
{{- define "keepwatch-sync.rule" }}
  {{- $name := regexReplaceAll "^([^.]+)[.]v[0-9]+((alpha|beta)[0-9]+)?[.]" . "${1}." }}
  {{- $parts := splitn "." 2 $name }}
- apiGroups: [{{ if eq . "*" }}"*"{{ else }}{{ $parts._1 | default "" | quote }}{{ end }}]
  resources: [{{ $parts._0 | quote }}]
  verbs: [get, list, watch]
{{- end }}
