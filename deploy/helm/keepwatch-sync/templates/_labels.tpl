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

{{- define "keepwatch-sync.file" -}}
{{- if hasPrefix "sqlite:" .Values.config.to }}true{{ end }}
{{- end }}
