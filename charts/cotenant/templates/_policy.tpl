{{/* A binding that makes the policy of the same name count everywhere. */}}
{{- define "cotenant.policy-binding" -}}
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
