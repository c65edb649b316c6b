{{/* Names are fixed: a cluster has one Cotenant, and its parts find each other by them. */}}

{{- define "cotenant.labels" -}}
app.kubernetes.io/name: cotenant
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "cotenant.selector" -}}
app.kubernetes.io/name: cotenant
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cotenant.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Who the API server says is calling. */}}
{{- define "cotenant.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:cotenant-{{ .account }}
{{- end }}

{{/* Users who may write grants, as a CEL list. */}}
{{- define "cotenant.servers" -}}
{{- $server := include "cotenant.user" (dict "root" . "account" "server") -}}
{{ concat (list $server) .Values.policies.servers | toJson }}
{{- end }}
