{{/* The address families of a Service; empty leaves them to the cluster. */}}
{{- define "carillon.ipFamilies" -}}
{{- with .Values.service.ipFamilyPolicy -}}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.service.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The beginning of a policy for the pods of a component: (list $ "component"). */}}
{{- define "carillon.policySpec" -}}
podSelector:
  matchLabels:
    {{- include "carillon.selectorLabels" . | nindent 4 }}
policyTypes: [Ingress, Egress]
{{- end -}}

{{/* The rule for Prometheus: (list $ port). */}}
{{- define "carillon.ingressToMetrics" -}}
- ports:
    - protocol: TCP
      port: {{ int (last .) }}
  {{- with (first .).Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* One egress rule: (list ports peers). Without peers every destination is allowed. */}}
{{- define "carillon.egressTo" -}}
- ports:
    {{- range first . }}
    - protocol: TCP
      port: {{ int . }}
    {{- end }}
  {{- with last . }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The rule for the API of the release, past its Service. */}}
{{- define "carillon.egressToApi" -}}
- ports:
    - protocol: TCP
      port: 8000
  to:
    - podSelector:
        matchLabels:
          {{- include "carillon.selectorLabels" (list . "api") | nindent 10 }}
{{- end -}}

{{- define "carillon.egressToDns" -}}
{{- with .Values.networkPolicy.dns -}}
- ports:
    {{- range .ports }}
    - protocol: UDP
      port: {{ int . }}
    - protocol: TCP
      port: {{ int . }}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "carillon.egressToPostgres" -}}
{{- with .Values.networkPolicy.postgres -}}
{{- include "carillon.egressTo" (list (list .port) .to) -}}
{{- end -}}
{{- end -}}

{{- define "carillon.egressToRedis" -}}
{{- with .Values.networkPolicy.redis -}}
{{- include "carillon.egressTo" (list (list .port) .to) -}}
{{- end -}}
{{- end -}}

{{/* The rule for the trace collector; empty if no traces are sent. */}}
{{- define "carillon.egressToCollector" -}}
{{- if .Values.settings.otelEndpoint -}}
{{- with .Values.networkPolicy.collector -}}
{{- include "carillon.egressTo" (list (list .port) .to) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The rule for the identity provider; empty if there is none. */}}
{{- define "carillon.egressToIdentityProvider" -}}
{{- if or .Values.settings.oidcIssuer .Values.settings.kubernetesIssuer -}}
{{- with .Values.networkPolicy.identityProvider -}}
{{- include "carillon.egressTo" (list (list .port) .to) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The rule for targets, on all ports or on the given ones; empty without targets. */}}
{{- define "carillon.egressToWebhooks" -}}
{{- with .Values.networkPolicy.webhooks -}}
{{- if .to }}
- to:
    {{- toYaml .to | nindent 4 }}
  {{- with .ports }}
  ports:
    {{- range . }}
    - protocol: TCP
      port: {{ int . }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The rules of the Jobs that run before the release: DNS and PostgreSQL. */}}
{{- define "carillon.egressOfHooks" -}}
egress:
  {{- include "carillon.egressToDns" . | nindent 2 }}
  {{- include "carillon.egressToPostgres" . | nindent 2 }}
  {{- with .Values.networkPolicy.extraEgress }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The rules that the API and the workers share: DNS, PostgreSQL and Redis. */}}
{{- define "carillon.egressOfProcesses" -}}
{{ include "carillon.egressToDns" . }}
{{ include "carillon.egressToPostgres" . }}
{{ include "carillon.egressToRedis" . }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
