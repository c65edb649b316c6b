{{/* The names of each dialect; a test compares them with the code. Dialects that are off do not apply to pods. */}}

{{/* Every resource that a container may request, as a JSON list. */}}
{{- define "cotenant.resources" -}}
{{- $names := list "cotenant.dev/gpu-memory" "cotenant.dev/gpu-compute" "cotenant.dev/gpu" "cotenant.dev/gpu-slot" -}}
{{- with .Values.settings.dialects -}}
{{- if .aliyun.enabled }}{{ $names = concat $names (list "aliyun.com/gpu-mem" "aliyun.com/gpu-count") }}{{ end -}}
{{- if .volcano.enabled }}{{ $names = concat $names (list "volcano.sh/gpu-memory" "volcano.sh/gpu-number") }}{{ end -}}
{{- if .nvidia.enabled }}{{ $names = concat $names (list "nvidia.com/gpu") }}{{ end -}}
{{- end -}}
{{ $names | toJson }}
{{- end }}

{{/* Every resource that an agent may set on its node: also of dialects that are off, whose amounts it removes. */}}
{{- define "cotenant.node-resources" -}}
{{ list "aliyun.com/gpu-mem" "aliyun.com/gpu-count" "volcano.sh/gpu-memory" "volcano.sh/gpu-number" "nvidia.com/gpu" | toJson }}
{{- end }}

{{/* Annotations of a GPU pod that only the server writes, beside the native ones, as a JSON list. */}}
{{- define "cotenant.dialect-annotations" -}}
{{- $names := list -}}
{{- with .Values.settings.dialects -}}
{{- if .aliyun.enabled }}{{ $names = concat $names (list "ALIYUN_COM_GPU_MEM_IDX" "ALIYUN_COM_GPU_MEM_DEV" "ALIYUN_COM_GPU_MEM_POD" "ALIYUN_COM_GPU_MEM_ASSIGNED" "ALIYUN_COM_GPU_MEM_ASSUME_TIME" "scheduler.framework.gpushare.allocation") }}{{ end -}}
{{- if .volcano.enabled }}{{ $names = concat $names (list "volcano.sh/gpu-index" "volcano.sh/predicate-time" "volcano.sh/gpu-assigned") }}{{ end -}}
{{- end -}}
{{ $names | toJson }}
{{- end }}

{{/* CEL: whether the annotation `key` belongs to a grant. */}}
{{- define "cotenant.native-grant" -}}
key in ["cotenant.dev/grant", "cotenant.dev/retry"]
|| key.startsWith("devices.cotenant.dev/")
|| key.startsWith("compute.cotenant.dev/")
|| key.startsWith("card-memory.cotenant.dev/")
|| key.startsWith("mps-memory.cotenant.dev/")
{{- end }}

{{/* CEL: whether the container `c` holds a slot; every GPU pod has one that does, once it was admitted. */}}
{{- define "cotenant.holds-slot" -}}
"cotenant.dev/gpu-slot" in c.?resources.?limits.orValue({})
{{- end }}
