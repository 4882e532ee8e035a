{{- define "carillon.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The full name, cut so that the name with any suffix of the chart fits into the 63 characters of a label. */}}
{{- define "carillon.fullname" -}}
{{- $name := include "carillon.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- .Values.fullnameOverride | default $full | trunc 46 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of all pods of the release and of no other pods. */}}
{{- define "carillon.releaseLabels" -}}
app.kubernetes.io/name: {{ include "carillon.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Labels that select the pods of a component: (list $ "api"). Kubernetes cannot change them: never add one. */}}
{{- define "carillon.selectorLabels" -}}
{{ include "carillon.releaseLabels" (first .) }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{/* Labels of an object: (list $ "component"). Those of the chart come before those of the values. */}}
{{- define "carillon.labels" -}}
{{- $own := include "carillon.ownLabels" . | fromYaml -}}
{{ merge $own (first .).Values.commonLabels | toYaml }}
{{- end -}}

{{- define "carillon.ownLabels" -}}
{{- $root := first . -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "carillon.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: carillon
{{- end -}}

{{/*
Name, namespace, annotations and labels of an object: (list $ "component" "-suffix of its name" "own annotations"), the last
one optional. Own annotations come before those of all objects.
*/}}
{{- define "carillon.metadata" -}}
{{- $root := first . -}}
{{- $own := dict -}}
{{- if gt (len .) 3 -}}
{{- $own = index . 3 | fromYaml -}}
{{- end -}}
name: {{ include "carillon.fullname" $root }}{{ index . 2 }}
namespace: {{ $root.Release.Namespace }}
{{- with merge $own $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "carillon.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Annotations of a hook with these events and weight: (list "pre-install,pre-upgrade" -10). Failed hooks stay. */}}
{{- define "carillon.hook" -}}
helm.sh/hook: {{ first . }}
helm.sh/hook-weight: {{ last . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- define "carillon.serviceAccountName" -}}
{{- $own := ternary (include "carillon.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $own -}}
{{- end -}}

{{/* The ServiceAccount of a hook. Hooks run before the account of the release exists, so they have their own. */}}
{{- define "carillon.migrateServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ include "carillon.fullname" . }}-migrate
{{- else -}}
{{ include "carillon.serviceAccountName" . }}
{{- end -}}
{{- end -}}

{{- define "carillon.image" -}}
{{- with .Values.image -}}
{{- $name := empty .registry | ternary .repository (printf "%s/%s" .registry .repository) -}}
{{- if .digest -}}
{{ $name }}@{{ .digest }}
{{- else -}}
{{ $name }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The URL of the API inside the cluster. */}}
{{- define "carillon.url" -}}
http://{{ include "carillon.fullname" . }}.{{ .Release.Namespace }}.svc:{{ int .Values.service.port }}
{{- end -}}
