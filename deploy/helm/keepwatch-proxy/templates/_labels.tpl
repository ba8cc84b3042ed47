{{- define "keepwatch-proxy.selector" -}}
app.kubernetes.io/name: keepwatch-proxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "keepwatch-proxy.labels" -}}
{{ include "keepwatch-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
