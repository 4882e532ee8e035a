{{/* The bounds of an autoscaler: (list "min's name" "max's name" .Values.part.autoscaling). */}}
{{- define "carillon.bounds" -}}
{{- with last . -}}
{{- if lt (int .maxReplicas) (int .minReplicas) }}
{{- fail (printf "autoscaling.maxReplicas (%d) is less than autoscaling.minReplicas (%d)" (int .maxReplicas) (int .minReplicas)) }}
{{- end -}}
{{ first $ }}: {{ int .minReplicas }}
{{ index $ 1 }}: {{ int .maxReplicas }}
{{- end }}
{{- end -}}
