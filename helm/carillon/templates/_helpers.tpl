{{- define "carillon.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Cut short, so that every suffix of the chart still fits into the 63 characters of a label. */}}
{{- define "carillon.fullname" -}}
{{- $name := include "carillon.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 46 | trimSuffix "-" -}}
{{- end -}}

{{/* What identifies a component's pods: (list $ "api"). Immutable once installed: never add to it. */}}
{{- define "carillon.selectorLabels" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ include "carillon.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{- define "carillon.labels" -}}
{{- $root := first . -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "carillon.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: carillon
{{- end -}}

{{- define "carillon.serviceAccountName" -}}
{{- $own := ternary (include "carillon.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{/* A hook runs before the release's own account exists, so it brings one of its own. */}}
{{- define "carillon.migrationServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ include "carillon.fullname" . }}-migrate
{{- else -}}
{{ include "carillon.serviceAccountName" . }}
{{- end -}}
{{- end -}}

{{- define "carillon.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Numbers by way of JSON: helm holds them as floats, and prints a million as 1e+06. */}}
{{- define "carillon.settingText" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "string" . -}}
{{ . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Every plain setting as NAME: "text". */}}
{{- define "carillon.settings" -}}
CARILLON_PORT: "8000"
{{- range $name, $value := .Values.settings }}
CARILLON_{{ $name | snakecase | upper }}: {{ include "carillon.settingText" $value | quote }}
{{- end }}
{{- end -}}

{{- define "carillon.secretName" -}}
{{- required "existingSecret is required: the name of a Secret in the release's namespace that holds the database URL, the Redis URL, the admin token and the signing secret (see secretKeys for its keys)" .Values.existingSecret -}}
{{- end -}}

{{/* Environment variables from the Secret: (list $ "databaseUrl" "redisUrl"). An empty key name leaves one out. */}}
{{- define "carillon.secretEnv" -}}
{{- $root := first . -}}
{{- range $key := rest . }}
{{- with index $root.Values.secretKeys $key }}
- name: CARILLON_{{ $key | snakecase | upper }}
  valueFrom:
    secretKeyRef:
      name: {{ include "carillon.secretName" $root | quote }}
      key: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Above the drain time: the pause before the signal, the drain itself, and some seconds to close. */}}
{{- define "carillon.gracePeriodSeconds" -}}
{{- .Values.settings.drainSeconds | ceil | int | add 15 -}}
{{- end -}}

{{/*
What every pod has in common, up to the restricted Pod Security Standard. Service links are off: a Service named
"carillon" would set CARILLON_PORT to tcp://...
*/}}
{{- define "carillon.podDefaults" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAs.user }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- with .Values.runAs.group }}
  runAsGroup: {{ int64 . }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
{{- end -}}

{{- define "carillon.containerDefaults" -}}
image: {{ include "carillon.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end -}}

{{/* Where a component's pods may run, from its values. */}}
{{- define "carillon.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
