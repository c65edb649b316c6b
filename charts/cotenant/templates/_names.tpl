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

{{/* The user name of a service account at the API server. */}}
{{- define "cotenant.user" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:cotenant-{{ .account }}
{{- end }}

{{/* Users who may write grants, as a CEL list. */}}
{{- define "cotenant.servers" -}}
{{- $server := include "cotenant.user" (dict "root" . "account" "server") -}}
{{ concat (list $server) .Values.policies.servers | toJson }}
{{- end }}

{{/* The settings file. A scalar and a list of texts are the same in JSON and in TOML. */}}
{{- define "cotenant.settings" -}}
namespace = {{ .Release.Namespace | toJson }}
{{ include "cotenant.toml" (dict "section" .Values.settings "path" list) }}
{{- end }}

{{- define "cotenant.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .section }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- range $key, $value := .section }}
{{- if kindIs "map" $value }}
{{- $inner := append $path $key }}

[{{ join "." $inner }}]
{{- include "cotenant.toml" (dict "section" $value "path" $inner) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Keeps a pod within the Pod Security level `restricted`. */}}
{{- define "cotenant.restricted-pod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "cotenant.restricted-container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where the pods of a component may run, by its values. */}}
{{- define "cotenant.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cotenant.webhook-port" -}}
{{ dig "webhook" "port" 8443 .Values.settings }}
{{- end }}

{{- define "cotenant.extender-port" -}}
{{ dig "extender" "port" 8444 .Values.settings }}
{{- end }}

{{- define "cotenant.keda-port" -}}
{{ dig "keda" "port" 8445 .Values.settings }}
{{- end }}
