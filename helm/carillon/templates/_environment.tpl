{{/* Numbers by way of JSON: helm holds them as floats, and prints a million as 1e+06. */}}
{{- define "carillon.text" -}}
{{- if kindIs "slice" . -}}
{{ join "," . }}
{{- else if kindIs "string" . -}}
{{ . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}

{{/* Every plain setting as NAME: "text"; what is blank is left to the code. */}}
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

{{/* The variable that a secret value is given in. */}}
{{- define "carillon.secretVariable" -}}
{{- eq . "cronRunToken" | ternary "CRON_RUN_TOKEN" (printf "CARILLON_%s" (. | snakecase | upper)) -}}
{{- end -}}

{{/* The Secret that holds a value: (list $ "databaseUrl"). */}}
{{- define "carillon.secretName" -}}
{{- $root := first . -}}
{{- $usual := $root.Values.secret.create | ternary (include "carillon.fullname" $root) $root.Values.existingSecret -}}
{{- index $root.Values.secretNames (last .) | default $usual -}}
{{- end -}}

{{/* Variables from Secrets: (list $ "databaseUrl" "redisUrl"). An empty key name leaves one out. */}}
{{- define "carillon.secretEnv" -}}
{{- $root := first . -}}
{{- range $value := rest . }}
{{- with index $root.Values.secretKeys $value }}
- name: {{ include "carillon.secretVariable" $value }}
  valueFrom:
    secretKeyRef:
      name: {{ include "carillon.secretName" (list $root $value) | quote }}
      key: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment of a process that starts after the release's objects exist: (list $ "databaseUrl" ...). */}}
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

{{/* Whether the migration has a copy of the database URL: a Secret that the chart makes comes too late for a hook. */}}
{{- define "carillon.migrateSecret" -}}
{{- if and .Values.migrations.enabled .Values.secret.create (not .Values.secretNames.databaseUrl) -}}
{{ include "carillon.fullname" . }}-migrate
{{- end -}}
{{- end -}}

{{/* What rolls the pods when it changes. Of the Secret only what was given: what was made up stays. */}}
{{- define "carillon.checksums" -}}
checksum/settings: {{ include "carillon.settings" . | sha256sum }}
{{- if .Values.secret.create }}
checksum/secret: {{ .Values.secret | toJson | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end -}}
