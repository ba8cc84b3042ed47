{{- define "keepwatch-proxy.selector" -}}
app.kubernetes.io/name: keepwatch-proxy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* The name of what is not in the release's namespace: another namespace may have a release of the same name. */ -}}
{{- define "keepwatch-proxy.global" -}}
{{ .Release.Name }}.{{ .Release.Namespace }}
{{- end }}

{{- define "keepwatch-proxy.labels" -}}
{{ include "keepwatch-proxy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
