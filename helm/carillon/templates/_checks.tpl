{{/*
Fails with a sentence if a Secret that the pods need, or a key of it, is missing. Helm shows it at once; otherwise it would
wait for pods that cannot start. The check is left out where Helm cannot see the cluster: the ConfigMap that it looks for
first is in every namespace.
*/}}
{{- define "carillon.requireSecrets" -}}
{{- $root := . -}}
{{- if not .Values.enabled -}}
{{- fail "enabled is false. It is for the `condition` of a chart that depends on this one, which then leaves it out" -}}
{{- end -}}
{{- if and .Values.checkSecrets (lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt") -}}
{{- range $value, $key := .Values.secretKeys -}}
{{- $isMade := and $root.Values.secret.create (not (index $root.Values.secretNames $value)) -}}
{{- if and $key (not $isMade) (not (index $root.Values.secretFiles $value)) -}}
{{- $name := include "carillon.secretName" (list $root $value) -}}
{{- $secret := lookup "v1" "Secret" $root.Release.Namespace $name -}}
{{- if not $secret -}}
{{- fail (printf "\n\nThe Secret %q does not exist in the namespace %q. Create it with the key %q (secretKeys.%s), or name another one by existingSecret or secretNames.%s. checkSecrets=false leaves this check out.\n" $name $root.Release.Namespace $key $value $value) -}}
{{- end -}}
{{- if not (hasKey ($secret.data | default dict) $key) -}}
{{- fail (printf "\n\nThe Secret %q in the namespace %q has no key %q. Add it, or set secretKeys.%s to the key that it has (empty if optional). checkSecrets=false leaves this check out.\n" $name $root.Release.Namespace $key $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
