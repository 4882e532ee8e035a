{{- define "carillon.operatorServiceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ include "carillon.fullname" . }}-operator
{{- else -}}
{{ include "carillon.serviceAccountName" . }}
{{- end -}}
{{- end -}}

{{- define "carillon.operatorLease" -}}
{{ include "carillon.fullname" . }}-operator
{{- end -}}

{{/* The name of objects that belong to no namespace: another release may have the same name in another namespace. */}}
{{- define "carillon.clusterName" -}}
{{- printf "%s-operator-%s" (include "carillon.fullname" . | trunc 34 | trimSuffix "-") (.Release.Namespace | sha256sum | trunc 8) -}}
{{- end -}}

{{/* Metadata of an object outside of the namespace of the release: (list $ "name" "namespace, or empty for none"). */}}
{{- define "carillon.operatorMetadata" -}}
{{- $root := first . -}}
name: {{ index . 1 }}
{{- with last . }}
namespace: {{ . }}
{{- end }}
{{- with $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "carillon.labels" (list $root "operator") | nindent 2 }}
{{- end -}}

{{/* The files of the service account, as Kubernetes mounts them, and the tokens for Carillon by namespace. */}}
{{- define "carillon.operatorVolumes" -}}
{{- if not (or .Values.operator.tokensSecret .Values.settings.kubernetesIssuer) -}}
{{- fail "operator.tokensSecret is required with operator.enabled, unless settings.kubernetesIssuer is set" -}}
{{- end -}}
- name: operator-account
  projected:
    sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
      - downwardAPI:
          items:
            - path: namespace
              fieldRef:
                fieldPath: metadata.namespace
- name: operator-tokens
  projected:
    sources:
      {{- if .Values.settings.kubernetesIssuer }}
      - serviceAccountToken:
          path: _default
          audience: {{ .Values.settings.oidcAudience | quote }}
          expirationSeconds: 3600
      {{- end }}
      {{- with .Values.operator.tokensSecret }}
      - secret:
          name: {{ . | quote }}
      {{- end }}
{{- end -}}

{{- define "carillon.operatorMounts" -}}
- name: operator-account
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
- name: operator-tokens
  mountPath: /tokens
  readOnly: true
{{- end -}}

{{/* The least that the operator needs: it creates and deletes no objects. */}}
{{- define "carillon.operatorRules" -}}
rules:
  - apiGroups: [carillon.dev]
    resources: [schedules, workflows]
    verbs: [get, list, watch, patch]
  - apiGroups: [carillon.dev]
    resources: [schedules/status, workflows/status]
    verbs: [patch]
{{- end -}}

{{/* What a binding to a Role of the release has: (list $ "Role" "-suffix of its name"). */}}
{{- define "carillon.operatorBinding" -}}
{{- $root := first . -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ include "carillon.fullname" $root }}{{ last . }}
{{ include "carillon.operatorSubjects" $root }}
{{- end -}}

{{- define "carillon.operatorSubjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "carillon.operatorServiceAccountName" . }}
    namespace: {{ .Release.Namespace }}
{{- end -}}
