#!/bin/sh
# Moves a namespace from time-slicing to limits of GPU memory, one step at a time.
# docs/monitor-first.md says when to take the next one, and what is seen after each.
set -eu

usage="usage: sh $0 STEP ...
  watch   NAMESPACE               who takes turns on GPUs, and what limits them: nothing
  advise  NAMESPACE [OPTION...]   what each workload should ask for, into gpu-memory-NAMESPACE.yaml;
                                  options are those of cotenant recommend
  install [OPTION...]             Cotenant, in mode observe, on no node yet; options are those of helm
  move    NODE                    gives a node's GPUs to Cotenant
  observe NAMESPACE               workloads ask for what was advised, and nothing is refused
  see     NAMESPACE               limit, use and peak of each container, and what was or would be refused
  warn    NAMESPACE               programs that pass their limit are told
  enforce NAMESPACE               programs are stopped at their limit
  back    NAMESPACE               to observe"

system=cotenant-system
chart=$(dirname "$0")/../charts/cotenant
own_nodes='{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
  {"matchExpressions": [{"key": "cotenant.dev/gpu", "operator": "In", "values": ["true"]}]}]}}}'

watch() {
    kubectl get nodes -o custom-columns='NODE:.metadata.name,CARDS:.metadata.labels.nvidia\.com/gpu\.count,SHARING:.metadata.labels.nvidia\.com/gpu\.sharing-strategy,TURNS:.status.allocatable.nvidia\.com/gpu,TURNS (RENAMED):.status.allocatable.nvidia\.com/gpu\.shared'
    echo
    kubectl -n "$1" get pods -o custom-columns='POD:.metadata.name,NODE:.spec.nodeName,TURNS:.spec.containers[*].resources.limits.nvidia\.com/gpu,TURNS (RENAMED):.spec.containers[*].resources.limits.nvidia\.com/gpu\.shared,LIMIT OF GPU MEMORY:.spec.containers[*].resources.limits.cotenant\.dev/gpu-memory'
}

advise() {
    namespace=$1
    shift
    cotenant recommend -n "$namespace" "$@"
    cotenant recommend -n "$namespace" "$@" -o yaml > "gpu-memory-$namespace.yaml"
    echo
    echo "gpu-memory-$namespace.yaml has the patches. Read it, and change what you know better."
}

install() {
    kubectl get namespace "$system" || kubectl create namespace "$system"
    kubectl label namespace "$system" pod-security.kubernetes.io/enforce=privileged --overwrite
    helm upgrade --install cotenant "$chart" --namespace "$system" \
        --set settings.agent.mode=observe --set-json "agent.affinity=$own_nodes" "$@"
    kubectl -n "$system" rollout status deployment/cotenant-server --timeout=180s
    kubectl -n "$system" rollout status deployment/cotenant-scheduler --timeout=180s
}

move() {
    kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --pod-selector='app.kubernetes.io/name!=cotenant'
    # NVIDIA's GPU operator takes its plugin off such a node. Without the operator, change the plugin's DaemonSet now.
    kubectl label node "$1" nvidia.com/gpu.deploy.device-plugin=false --overwrite
    tries=90
    while kubectl get node "$1" -o jsonpath='{.status.allocatable}' | grep -qE '"nvidia\.com/(gpu|mig-)[^"]*":"[1-9]'; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "NVIDIA's device plugin still offers the GPUs of $1" >&2; return 1; }
        sleep 2
    done
    kubectl label node "$1" cotenant.dev/gpu=true --overwrite
    kubectl wait "node/$1" --for=jsonpath='{.metadata.annotations.cotenant\.dev/gpus}' --timeout=180s
    kubectl uncordon "$1"
    cotenant status
}

observe() {
    patches=$(mktemp -d)
    awk -v folder="$patches" '/^---$/ { n++; next } { print > (folder "/" n + 0) }' "gpu-memory-$1.yaml"
    kubectl label namespace "$1" cotenant.dev/enforce=observe --overwrite
    for each in "$patches"/*; do
        kubectl patch -f "$each" --patch-file "$each"
    done
    rm -r "$patches"
    settled "$1"
}

settled() {
    for each in $(kubectl get -f "gpu-memory-$1.yaml" -o name); do
        kubectl -n "$1" rollout status "$each" --timeout=300s
    done
}

# A container reads its mode when it starts. Pods are deleted one after the other, and not by `kubectl rollout restart`:
# that would be a new version of the template, whose history begins anew, and would need room for old and new pods.
set_mode() {
    kubectl label namespace "$1" "cotenant.dev/enforce=$2" --overwrite
    for pod in $(kubectl -n "$1" get pods -o jsonpath='{range .items[*]}{.metadata.name}{" "}{.metadata.ownerReferences[*].controller}{" "}{.metadata.annotations.cotenant\.dev/grant}{"\n"}{end}' | awk '$2 == "true" && $3 { print $1 }'); do
        kubectl -n "$1" delete pod "$pod"
        sleep 2 # until its controller has noticed
        settled "$1"
    done
}

see() {
    kubectl -n "$1" get pods -o custom-columns='POD:.metadata.name,WHAT HOLDS IT:.status.conditions[?(@.type=="cotenant.dev/GPULimitHeld")].message'
    echo
    for agent in $(kubectl -n "$system" get pods -l app.kubernetes.io/component=agent -o jsonpath='{.items[*].metadata.name}'); do
        kubectl get --raw "/api/v1/namespaces/$system/pods/https:$agent:8889/proxy/metrics"
    done | awk -v namespace="$1" '
        function label(name) { return match($0, name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) : "" }
        function mib(bytes) { return sprintf("%.0fMi", bytes / 1048576) }
        /^cotenant_container_/ && index($0, "namespace=\"" namespace "\"") {
            key = label("pod") " " label("container")
            if (/^cotenant_container_memory_limit_bytes/) limit[key] += $NF
            if (/^cotenant_container_memory_used_bytes/) { used[key] += $NF; seen[key] }
            if (/^cotenant_container_memory_peak_bytes/) peak[key] += $NF
            if (/^cotenant_container_over_limit_allocations_total/) passed[key] += $NF
            if (/^cotenant_container_denied_allocations_total/) refused[key] += $NF
            if (/^cotenant_container_enforcer_info/) mode[key] = label("mode")
        }
        END {
            form = "%-36s %-12s %-8s %9s %9s %9s %8s %8s\n"
            printf form, "POD", "CONTAINER", "MODE", "LIMIT", "USED", "PEAK", "PASSED", "REFUSED"
            fflush()
            for (key in seen) {
                split(key, name, " ")
                printf form, name[1], name[2], mode[key] ? mode[key] : "-", key in limit ? mib(limit[key]) : "-",
                    mib(used[key]), mib(peak[key]), passed[key] + 0, refused[key] + 0 | "sort"
            }
        }'
}

step=${1:-}
case $step:$# in
    watch:2 | move:2 | observe:2 | see:2 | install:* | advise:[2-9]*) shift && "$step" "$@" ;;
    warn:2 | enforce:2) set_mode "$2" "$step" ;;
    back:2) set_mode "$2" observe ;;
    *) echo "$usage" >&2 && exit 2 ;;
esac
