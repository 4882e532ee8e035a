{{/* A value as text. Numbers are converted by JSON: helm stores them as floats and prints a million as 1e+06. */}}
{{- define "carillon.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "string" . -}}
{{ . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Every setting that is not secret, as NAME: "text". Blank settings are left out, so that the default applies. */}}
{{- define "carillon.settings" -}}
CARILLON_PORT: "8000"
{{- range $name, $value := .Values.settings }}
{{- $text := include "carillon.text" $value }}
{{- if eq $name "publicUrl" }}
{{- $text = $text | default (include "carillon.url" $) }}
{{- end }}
{{- with $text }}
CARILLON_{{ $name | snakecase | upper }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment variable of a secret value. */}}
{{- define "carillon.secretVariable" -}}
{{- eq . "cronRunToken" | ternary "CRON_RUN_TOKEN" (printf "CARILLON_%s" (. | snakecase | upper)) -}}
{{- end -}}

{{/* The name of the Secret with a value: (list $ "databaseUrl"). */}}
{{- define "carillon.secretName" -}}
{{- $root := first . -}}
{{- $usual := $root.Values.secret.create | ternary (include "carillon.fullname" $root) $root.Values.existingSecret -}}
{{- index $root.Values.secretNames (last .) | default $usual -}}
{{- end -}}

{{/* Variables from Secrets or files: (list $ "databaseUrl" "redisUrl"). A value with an empty key is left out. */}}
{{- define "carillon.secretEnv" -}}
{{- $root := first . -}}
{{- range $value := rest . }}
{{- if index $root.Values.secretFiles $value }}
- name: {{ include "carillon.secretVariable" $value }}_FILE
  value: {{ index $root.Values.secretFiles $value | quote }}
{{- else }}
{{- with index $root.Values.secretKeys $value }}
- name: {{ include "carillon.secretVariable" $value }}
  valueFrom:
    secretKeyRef:
      name: {{ include "carillon.secretName" (list $root $value) | quote }}
      key: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment of a process that starts after the objects of the release exist: (list $ "databaseUrl" ...). */}}
{{- define "carillon.environment" -}}
{{- $root := first . -}}
envFrom:
  - configMapRef:
      name: {{ include "carillon.fullname" $root }}
  {{- with $root.Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- include "carillon.secretEnv" . | trim | nindent 2 }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/*
The environment of a hook that runs before the objects of the release exist: (list $ "databaseUrl" ...). Settings are written out, not taken from the
ConfigMap, which an install creates and an upgrade changes only later. The same is true for a Secret of the chart.
*/}}
{{- define "carillon.hookEnvironment" -}}
{{- $root := first . -}}
{{- with $root.Values.extraEnvFrom -}}
envFrom:
  {{- toYaml . | nindent 2 }}
{{ end -}}
env:
  {{- range $value := rest $ }}
  {{- include "carillon.hookSecretEnv" (list $root $value) | trim | nindent 2 }}
  {{- end }}
  {{- range $name, $value := include "carillon.settings" $root | fromYaml }}
  - name: {{ $name }}
    value: {{ $value | quote }}
  {{- end }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* A variable of a hook from a Secret, the migration's copy of it, or a file: (list $ "databaseUrl"). */}}
{{- define "carillon.hookSecretEnv" -}}
{{- $root := first . -}}
{{- $value := last . -}}
{{- $isMade := and $root.Values.secret.create (not (index $root.Values.secretNames $value)) -}}
{{- if or (not $isMade) (index $root.Values.secretFiles $value) -}}
{{ include "carillon.secretEnv" . }}
{{- else if index $root.Values.secretKeys $value -}}
- name: {{ include "carillon.secretVariable" $value }}
  valueFrom:
    secretKeyRef:
      name: {{ include "carillon.migrateSecret" $root | quote }}
      key: {{ index $root.Values.secretKeys $value | quote }}
{{- end -}}
{{- end -}}

{{/* The documents of `schedules`, a file for each. */}}
{{- define "carillon.documents" -}}
{{- range $name, $document := .Values.schedules }}
{{ $name }}.yaml: |
  {{- toYaml $document | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The Secret with the migration's copies of URLs, if needed: a hook runs before the chart's Secret. */}}
{{- define "carillon.migrateSecret" -}}
{{- if and .Values.migrations.enabled (include "carillon.migrateSecretData" .) -}}
{{ include "carillon.fullname" . }}-migrate
{{- end -}}
{{- end -}}

{{- define "carillon.migrateSecretData" -}}
{{- range $value := list "databaseUrl" "migrationDatabaseUrl" }}
{{- $key := index $.Values.secretKeys $value }}
{{- if and $.Values.secret.create $key (not (index $.Values.secretNames $value)) (not (index $.Values.secretFiles $value)) }}
{{ $key }}: {{ index $.Values.secret $value | b64enc | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Annotations that restart the pods when settings or given secrets change. Generated secrets never change. */}}
{{- define "carillon.checksums" -}}
checksum/settings: {{ include "carillon.settings" . | sha256sum }}
{{- if .Values.secret.create }}
checksum/secret: {{ .Values.secret | toJson | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end -}}
