{{/* The grace period: the preStop pause, the drain time, and some seconds to exit. */}}
{{- define "carillon.gracePeriodSeconds" -}}
{{- .Values.settings.drainSeconds | ceil | int | add .Values.api.preStopSeconds 10 -}}
{{- end -}}

{{/* Labels and annotations of a pod: (list $ "component" .Values.part). */}}
{{- define "carillon.podMetadata" -}}
{{- $root := first . -}}
{{- $part := last . -}}
{{- $own := include "carillon.selectorLabels" (list $root (index . 1)) | fromYaml -}}
labels:
  {{- merge $own $part.podLabels $root.Values.commonLabels | toYaml | nindent 2 }}
annotations:
  {{- $checksums := include "carillon.checksums" $root | fromYaml }}
  {{- merge $checksums $part.podAnnotations $root.Values.commonAnnotations | toYaml | nindent 2 }}
{{- end -}}

{{/*
What all pods share, within the Pod Security Standard `restricted`: (list $ .Values.part "volumes of its own").
Service links are off: a Service named "carillon" would set CARILLON_PORT to tcp://...
*/}}
{{- define "carillon.pod" -}}
{{- $root := first . -}}
{{- $part := index . 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with $root.Values.runAs.user }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- with $root.Values.runAs.group }}
  runAsGroup: {{ int64 . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with $part.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with $root.Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with $root.Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- with last . }}
  {{- nindent 2 . }}
  {{- end }}
  {{- with $root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What all containers share: (list $ "mounts of its own"). */}}
{{- define "carillon.container" -}}
{{- $root := first . -}}
image: {{ include "carillon.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- with last . }}
  {{- nindent 2 . }}
  {{- end }}
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
Attempts and time of a Job: (list $ "name of its container"). Exit code 2 says that the input is wrong, so that another
attempt would end in the same way.
*/}}
{{- define "carillon.jobLimits" -}}
{{- with (first .).Values.jobs -}}
backoffLimit: {{ int .backoffLimit }}
activeDeadlineSeconds: {{ int .activeDeadlineSeconds }}
{{- end }}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: {{ last . }}
        operator: In
        values: [2]
    # An evicted pod is no failed attempt.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
{{- end -}}

{{/*
Init containers: (list $ .Values.part). Those of the values come first, then the one that waits for the migration, if the
Job for it is disabled.
*/}}
{{- define "carillon.initContainers" -}}
{{- $root := first . -}}
{{- $given := (last .).initContainers -}}
{{- if or $given (not $root.Values.migrations.enabled) -}}
initContainers:
  {{- with $given }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if not $root.Values.migrations.enabled }}
  - name: wait-for-migrations
    {{- include "carillon.container" (list $root "") | nindent 4 }}
    args:
      - migrate
      - --wait
    {{- include "carillon.environment" (list $root "databaseUrl") | nindent 4 }}
    resources:
      {{- include "carillon.resources" (list $root "jobs") | nindent 6 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* CPU and memory of a part, its own or those of the profile: (list $ "api"). */}}
{{- define "carillon.resources" -}}
{{- $root := first . -}}
{{- $profile := index ($root.Files.Get "files/profiles.yaml" | fromYaml) $root.Values.profile -}}
{{ merge dict (index $root.Values (last .)).resources (index $profile (last .)) | toYaml }}
{{- end -}}

{{/*
Topology spread constraints: (list $ "component" constraints). Those without a labelSelector count the pods of the
component with the same revision.
*/}}
{{- define "carillon.spread" -}}
{{- $own := dict "matchLabels" (include "carillon.selectorLabels" (list (first .) (index . 1)) | fromYaml) -}}
{{- $constraints := list -}}
{{- range last . -}}
{{- $counted := hasKey . "labelSelector" | ternary dict (dict "labelSelector" $own "matchLabelKeys" (list "pod-template-hash")) -}}
{{- $constraints = append $constraints (merge dict . $counted) -}}
{{- end -}}
{{- with $constraints -}}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The three probes: (list .Values.part "port name"). The liveness probe checks only the process itself. */}}
{{- define "carillon.probes" -}}
{{- $port := last . -}}
{{- with (first .).probes -}}
{{- range $probe := list (list "startup" "live" .startup) (list "readiness" "ready" .readiness) (list "liveness" "live" .liveness) }}
{{ first $probe }}Probe:
  httpGet:
    path: /health/{{ index $probe 1 }}
    port: {{ $port }}
  {{- toYaml (last $probe) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The replicas of a Deployment. Left out with an autoscaler: every upgrade would undo its scaling. */}}
{{- define "carillon.replicas" -}}
{{- if not (or .autoscaling.enabled (kindIs "invalid" .replicas)) -}}
replicas: {{ int .replicas }}
{{- end -}}
{{- end -}}

{{/* The smallest number of pods of a part. */}}
{{- define "carillon.fewestPods" -}}
{{- .autoscaling.enabled | ternary .autoscaling.minReplicas .replicas | int -}}
{{- end -}}

{{- define "carillon.budget" -}}
{{- $root := first . -}}
{{- $part := index $root.Values (last .) -}}
{{- if $part.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "carillon.metadata" (list $root (last .) (printf "-%s" (last .))) | nindent 2 }}
spec:
  maxUnavailable: {{ include "carillon.text" $part.podDisruptionBudget.maxUnavailable }}
  # A pod that is not ready serves no requests and must not block draining its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "carillon.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}
