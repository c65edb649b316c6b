{{/*
A policy, and the binding of the same name that makes it count everywhere. The annotation is the sum of what was
installed: by it `cotenant doctor` sees that somebody changed the policy.
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
