{{/*
A policy, and the binding of the same name that puts it in force everywhere. The annotation is a checksum of what was
installed: by it `cotenant doctor` detects that somebody changed the policy.
*/}}
{{- define "cotenant.policy" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels:
    {{- include "cotenant.labels" .root | nindent 4 }}
    app.kubernetes.io/component: policy
  annotations:
    cotenant.dev/installed: {{ .spec | fromYaml | toJson | sha256sum }}
spec:
  {{- .spec | nindent 2 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "cotenant.labels" .root | nindent 4 }}
    app.kubernetes.io/component: policy
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
