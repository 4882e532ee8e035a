{{/* The limits of an autoscaler: (list "name of the minimum" "name of the maximum" .Values.part.autoscaling). */}}
{{- define "carillon.bounds" -}}
{{- with last . -}}
{{- if lt (int .maxReplicas) (int .minReplicas) }}
{{- fail (printf "autoscaling.maxReplicas (%d) is less than autoscaling.minReplicas (%d)" (int .maxReplicas) (int .minReplicas)) }}
{{- end -}}
{{ first $ }}: {{ int .minReplicas }}
{{ index $ 1 }}: {{ int .maxReplicas }}
{{- end }}
{{- end -}}
