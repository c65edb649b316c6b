{{- define "cotenant.scheduler-configuration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: cotenant-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# The extender sees every node; of a sample it might miss the only one that fits.
percentageOfNodesToScore: 100
# A pod that met a server that was away is tried again soon after it is back; the default would be 10 seconds.
# Pods that find no room do not come by themselves but are called, so this makes nobody ask more often.
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
  - schedulerName: {{ .Values.settings.admission.scheduler }}
extenders:
  - urlPrefix: {{ .Values.scheduler.extenderUrl | default (printf "https://cotenant-extender.%s.svc" .Release.Namespace) }}
    enableHTTPS: true
    tlsConfig:
      serverName: cotenant-extender.{{ .Release.Namespace }}.svc
      caFile: /etc/cotenant-certificates/ca.crt
      certFile: /etc/cotenant-certificates/scheduler.crt
      keyFile: /etc/cotenant-certificates/scheduler.key
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    bindVerb: bind
    # One step of ours outweighs all that the scheduler's own plugins say together.
    weight: 1000
    httpTimeout: 5s
    nodeCacheCapable: true
    # Without an answer no GPU pod is placed; pods without GPU are not asked about.
    ignorable: false
    managedResources:
      {{- range (include "cotenant.resources" . | fromJsonArray) }}
      - name: {{ . }}
        ignoredByScheduler: false
      {{- end }}
{{- end }}
