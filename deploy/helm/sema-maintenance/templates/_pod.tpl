{{/*
The pod of every component, as `metadata` and `spec`:
(dict "root" $ "component" "worker" "values" MAP "command" LIST "needs" LIST "wait" BOOL "restart" …
"grace" SECONDS "serviceAccount" NAME).
What it needs decides which variables and files it has; with "http" it serves pages and has probes.
*/}}
{{- define "sema-maintenance.pod" -}}
{{- $root := .root -}}
{{- $values := default dict .values -}}
{{- $policy := ternary (include "sema-maintenance.policyConfigMap" $root) "" (has "policy" .needs) -}}
{{- $release := default dict $root.Values.release -}}
{{- $checksums := dict -}}
{{- if and $policy (not (default dict $root.Values.policy).existingConfigMap) -}}
{{- $_ := set $checksums "checksum/policy" (sha256sum $root.Values.policy.content) -}}
{{- end -}}
metadata:
  labels:
    {{- include "sema-maintenance.labels" (dict "root" $root "component" .component "more" (list $root.Values.podLabels $values.podLabels)) | nindent 4 }}
  {{- with include "sema-maintenance.annotations" (dict "root" $root "more" (list $root.Values.podAnnotations $values.podAnnotations $checksums)) }}
  {{- . | nindent 2 }}
  {{- end }}
spec:
  serviceAccountName: {{ default (include "sema-maintenance.serviceAccountName" $root) .serviceAccount }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .restart }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- if include "sema-maintenance.given" .grace }}
  terminationGracePeriodSeconds: {{ include "sema-maintenance.number" .grace }}
  {{- end }}
  {{- with include "sema-maintenance.imagePullSecrets" $root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "sema-maintenance.securityContext" (list $root $root.Values.podSecurityContext) }}
  securityContext:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with default $root.Values.priorityClassName $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $root.Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $root.Values.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with include "sema-maintenance.stringMap" (list (default $root.Values.nodeSelector $values.nodeSelector)) }}
  nodeSelector:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with default $root.Values.tolerations $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default $root.Values.affinity $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $selector := dict "matchLabels" (include "sema-maintenance.selectorLabels" $ | fromYaml) }}
    - {{ ternary . (set (deepCopy .) "labelSelector" $selector) (hasKey . "labelSelector") | toYaml | nindent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- with $root.Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $wait := ternary (default dict $root.Values.migration).wait "" (default false .wait) }}
  {{- if or $wait $root.Values.extraInitContainers }}
  initContainers:
    {{- with $root.Values.extraInitContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $wait }}
    - name: wait-for-schema
      {{- $command := list "sema-maintenance" "migrate" "--wait" $wait }}
      {{- include "sema-maintenance.container" (dict "root" $root "command" $command "needs" list "resources" $values.resources) | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    # WHY one name for all: it is a label of every series, and they are the same from each pod.
    - name: sema-maintenance
      {{- include "sema-maintenance.container" (dict "root" $root "command" .command "needs" .needs "resources" $values.resources "policy" $policy) | nindent 6 }}
      {{- if has "http" .needs }}
      ports:
        - name: http
          containerPort: {{ include "sema-maintenance.httpPort" $root }}
          protocol: TCP
      {{- range $kind, $path := dict "liveness" "/healthz" "readiness" "/readyz" "startup" "/healthz" }}
      {{- with get (default dict $root.Values.probes) $kind }}
      {{ $kind }}Probe:
        httpGet:
          path: {{ $path }}
          port: http
        {{- include "sema-maintenance.numbers" (prepend (keys . | sortAlpha) .) | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- end }}
  volumes:
    - name: tmp
      {{- if $root.Values.tmpSizeLimit }}
      emptyDir:
        sizeLimit: {{ include "sema-maintenance.text" $root.Values.tmpSizeLimit | quote }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- if $policy }}
    - name: policy
      configMap:
        name: {{ $policy | quote }}
        items:
          - key: {{ include "sema-maintenance.policyKey" $root | quote }}
            path: policy.toml
    {{- end }}
    {{- if and (has "release" .needs) $release.existingSecret }}
    - name: release-token
      secret:
        secretName: {{ $release.existingSecret | quote }}
        items:
          - key: {{ default "token" $release.tokenKey | quote }}
            path: token
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* A security context, without ids where the platform assigns them: (list ROOT MAP). */}}
{{- define "sema-maintenance.securityContext" -}}
{{- $context := default dict (index . 1) -}}
{{- if (default dict (index . 0).Values.openshift).adaptSecurityContext -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- include "sema-maintenance.yaml" $context -}}
{{- end -}}

{{- define "sema-maintenance.policyKey" -}}
{{- default "policy.toml" (default dict .Values.policy).key -}}
{{- end -}}

{{/* What every container of ours has: (dict "root" $ "command" LIST "needs" LIST "resources" MAP). */}}
{{- define "sema-maintenance.container" -}}
{{- $root := .root -}}
image: {{ include "sema-maintenance.image" $root | quote }}
imagePullPolicy: {{ default "IfNotPresent" (default dict $root.Values.image).pullPolicy }}
command:
  {{- range .command }}
  - {{ include "sema-maintenance.text" . | quote }}
  {{- end }}
{{- with include "sema-maintenance.securityContext" (list $root $root.Values.securityContext) }}
securityContext:
  {{- . | nindent 2 }}
{{- end }}
env:
  {{- include "sema-maintenance.env" . | trim | nindent 2 }}
{{- with include "sema-maintenance.envFrom" . }}
envFrom:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "sema-maintenance.yaml" .resources }}
resources:
  {{- . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if .policy }}
  - name: policy
    mountPath: /etc/sema-maintenance
    readOnly: true
  {{- end }}
  {{- if and (has "release" .needs) (default dict $root.Values.release).existingSecret }}
  - name: release-token
    mountPath: /etc/sema-release
    readOnly: true
  {{- end }}
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
