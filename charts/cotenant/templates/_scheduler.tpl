{{- define "cotenant.scheduler-configuration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: cotenant-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# The extender must see every node: a sample might leave out the only one that fits.
percentageOfNodesToScore: 100
# Retries a pod soon after a server is back that did not answer; the default would be 10 seconds. Pods that find no room
# are retried only when the server says so, so this causes no more requests.
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
  - schedulerName: {{ .Values.settings.admission.scheduler }}
extenders:
  - urlPrefix: {{ .Values.scheduler.extenderUrl | default (printf "https://cotenant-extender.%s.svc" .Release.Namespace) }}
    enableHTTPS: true
    tlsConfig:
      serverName: cotenant-extender.{{ .Release.Namespace }}.svc
      caFile: /etc/cotenant-certificates/bundle.crt
      certFile: /etc/cotenant-certificates/scheduler.crt
      keyFile: /etc/cotenant-certificates/scheduler.key
    # Names the best node alone. Nobody else has a say here, and one node is not scored; `filter` would name all that fit.
    filterVerb: choose
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    # One point of ours outweighs the scores of all plugins of kube-scheduler together.
    weight: 1000
    httpTimeout: 5s
    nodeCacheCapable: true
    # Without an answer no GPU pod is placed. For pods without GPU the extender is not called.
    ignorable: false
    managedResources:
      {{- range (include "cotenant.resources" . | fromJsonArray) }}
      - name: {{ . }}
        ignoredByScheduler: false
      {{- end }}
  {{- if dig "extender" "pods_without_gpu" false .Values.settings }}
  # Ranks nodes for pods without GPU that name this scheduler. It only ranks, so they are placed also while no server answers.
  - urlPrefix: {{ .Values.scheduler.extenderUrl | default (printf "https://cotenant-extender.%s.svc" .Release.Namespace) }}
    enableHTTPS: true
    tlsConfig:
      serverName: cotenant-extender.{{ .Release.Namespace }}.svc
      caFile: /etc/cotenant-certificates/bundle.crt
      certFile: /etc/cotenant-certificates/scheduler.crt
      keyFile: /etc/cotenant-certificates/scheduler.key
    prioritizeVerb: prioritize-without-gpu
    weight: 1000
    httpTimeout: 1s
    nodeCacheCapable: true
    ignorable: true
  {{- end }}
{{- end }}
