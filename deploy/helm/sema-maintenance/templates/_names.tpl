{{/* Name of the chart, or what takes its place. */}}
{{- define "sema-maintenance.name" -}}
{{- default .Chart.Name .Values.nameOverride | toString | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Begin of every name: release and chart, or the release alone where it has the chart in it. */}}
{{- define "sema-maintenance.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | toString | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride | toString -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Name of one object: (dict "root" $ "suffix" "worker" "max" 63). One that would be too long is cut and
gets a hash of the whole, so that two of them stay two.
*/}}
{{- define "sema-maintenance.named" -}}
{{- $fullname := include "sema-maintenance.fullname" .root -}}
{{- $max := int (default 63 .max) -}}
{{- $whole := printf "%s-%s" $fullname .suffix -}}
{{- if le (len $whole) $max -}}
{{- $whole -}}
{{- else -}}
{{- $hash := sha256sum $fullname | trunc 6 -}}
{{- $room := sub $max (add (len .suffix) (len $hash) 2) | int -}}
{{- printf "%s-%s-%s" ($fullname | trunc $room | trimSuffix "-") $hash .suffix -}}
{{- end -}}
{{- end -}}

{{- define "sema-maintenance.serviceAccountName" -}}
{{- $account := default dict .Values.serviceAccount -}}
{{- if $account.create -}}
{{- default (include "sema-maintenance.fullname" .) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* What a Deployment, and everything that goes with it, selects by: (dict "root" $ "component" …). */}}
{{- define "sema-maintenance.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sema-maintenance.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- with .component }}
app.kubernetes.io/component: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of an object: (dict "root" $ "component" … "more" (list …)). Ours cannot be overwritten. */}}
{{- define "sema-maintenance.labels" -}}
{{- $root := .root -}}
{{- $ours := include "sema-maintenance.selectorLabels" . | fromYaml -}}
{{- $_ := set $ours "app.kubernetes.io/version" (include "sema-maintenance.version" $root) -}}
{{- $_ := set $ours "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $ours "app.kubernetes.io/part-of" "sema" -}}
{{- $_ := set $ours "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $all := list $root.Values.commonLabels -}}
{{- range .more }}{{ $all = append $all . }}{{ end -}}
{{- include "sema-maintenance.stringMap" (append $all $ours) -}}
{{- end -}}

{{/* The worker's release as a label: its tag, cut to what a label may hold. */}}
{{- define "sema-maintenance.version" -}}
{{- $image := default dict .Values.image -}}
{{- default .Chart.AppVersion $image.tag | toString | replace "+" "_" | trunc 63 | trimAll "-_." -}}
{{- end -}}

{{/* Annotations of an object, with their key, or nothing: (dict "root" $ "more" (list …)). */}}
{{- define "sema-maintenance.annotations" -}}
{{- $all := list .root.Values.commonAnnotations -}}
{{- range .more }}{{ $all = append $all . }}{{ end -}}
{{- with include "sema-maintenance.stringMap" $all -}}
annotations:
  {{- . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Several maps as one, the later first; whatever the values are, they become strings. */}}
{{- define "sema-maintenance.stringMap" -}}
{{- $merged := dict -}}
{{- range . -}}
{{- range $key, $value := (default dict .) -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $merged $key (include "sema-maintenance.text" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $merged -}}
{{- toYaml $merged -}}
{{- end -}}
{{- end -}}

{{- define "sema-maintenance.metadata" -}}
{{- $max := int (default 63 .max) -}}
name: {{ include "sema-maintenance.named" (dict "root" .root "suffix" .suffix "max" $max) }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "sema-maintenance.labels" (dict "root" .root "component" .component "more" .labels) | nindent 2 }}
{{- with include "sema-maintenance.annotations" (dict "root" .root "more" .annotations) }}
{{ . }}
{{- end }}
{{- end -}}

{{- define "sema-maintenance.image" -}}
{{- $image := default dict .Values.image -}}
{{- $global := default dict .Values.global -}}
{{- $registry := default $image.registry $global.imageRegistry -}}
{{- $place := $image.repository -}}
{{- if $registry }}{{ $place = printf "%s/%s" (trimSuffix "/" $registry) $place }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $place $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $place (default .Chart.AppVersion $image.tag | toString) -}}
{{- end -}}
{{- end -}}

{{- define "sema-maintenance.imagePullSecrets" -}}
{{- $global := default dict .Values.global -}}
{{- $names := list -}}
{{- range concat (default list $global.imagePullSecrets) (default list .Values.imagePullSecrets) -}}
{{- $names = append $names (ternary . (get (ternary dict . (kindIs "string" .)) "name") (kindIs "string" .)) -}}
{{- end -}}
{{- with uniq $names -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}
