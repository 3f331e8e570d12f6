{{/* One variable from a key of a Secret: (list NAME SECRET KEY). */}}
{{- define "sema-maintenance.fromSecret" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 | quote }}
      key: {{ index . 2 | quote }}
{{- end -}}

{{/*
Where the database is and who connects, each in a variable of its own. libpq reads what the address
leaves out from them. WHY not in one address: a password would have to be escaped for it, and a $(VAR)
is put in as it is. (dict "root" $ "owner" true) connects as who migrates.
*/}}
{{- define "sema-maintenance.databaseEnv" -}}
{{- $database := default dict .root.Values.database -}}
{{- $keys := default dict $database.keys -}}
{{- $secret := $database.existingSecret -}}
{{- if $keys.url }}
{{ include "sema-maintenance.fromSecret" (list "MAINT_DATABASE_URL" $secret $keys.url) }}
{{- else }}
- name: MAINT_DATABASE_URL
  value: postgresql://
{{- $owner := ternary (default dict (default dict .root.Values.migration).database) dict (default false .owner) }}
{{- $ownerKeys := default dict $owner.keys }}
{{- range $variable, $part := dict "PGHOST" "host" "PGPORT" "port" "PGDATABASE" "name" }}
{{- if include "sema-maintenance.given" (get $owner $part) }}
- name: {{ $variable }}
  value: {{ include "sema-maintenance.text" (get $owner $part) | trimAll (ternary "[]" "" (eq $part "host")) | quote }}
{{- else if get $keys $part }}
{{ include "sema-maintenance.fromSecret" (list $variable $secret (get $keys $part)) }}
{{- else if include "sema-maintenance.given" (get $database $part) }}
- name: {{ $variable }}
  value: {{ include "sema-maintenance.text" (get $database $part) | trimAll (ternary "[]" "" (eq $part "host")) | quote }}
{{- end }}
{{- end }}
{{- if $database.sslMode }}
- name: PGSSLMODE
  value: {{ $database.sslMode | quote }}
{{- end }}
{{- if and $owner.existingSecret $ownerKeys.user }}
{{ include "sema-maintenance.fromSecret" (list "PGUSER" $owner.existingSecret $ownerKeys.user) }}
{{- else if $owner.user }}
- name: PGUSER
  value: {{ $owner.user | quote }}
{{- else if $keys.user }}
{{ include "sema-maintenance.fromSecret" (list "PGUSER" $secret $keys.user) }}
{{- else if $database.user }}
- name: PGUSER
  value: {{ $database.user | quote }}
{{- end }}
{{- if $owner.existingSecret }}
{{- if $ownerKeys.password }}
{{ include "sema-maintenance.fromSecret" (list "PGPASSWORD" $owner.existingSecret $ownerKeys.password) }}
{{- end }}
{{- else if and $secret $keys.password }}
{{ include "sema-maintenance.fromSecret" (list "PGPASSWORD" $secret $keys.password) }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The broker's address without user and password, and these two beside it. */}}
{{- define "sema-maintenance.brokerEnv" -}}
{{- $broker := default dict .Values.broker -}}
{{- $keys := default dict $broker.keys -}}
{{- $secret := $broker.existingSecret -}}
{{- if $keys.url }}
{{ include "sema-maintenance.fromSecret" (list "MAINT_BROKER_URL" $secret $keys.url) }}
{{- else }}
- name: MAINT_BROKER_URL
  value: {{ include "sema-maintenance.brokerUrl" . | quote }}
{{- if $keys.user }}
{{ include "sema-maintenance.fromSecret" (list "MAINT_BROKER_USER" $secret $keys.user) }}
{{- else if $broker.user }}
- name: MAINT_BROKER_USER
  value: {{ $broker.user | quote }}
{{- end }}
{{- if and $secret $keys.password }}
{{ include "sema-maintenance.fromSecret" (list "MAINT_BROKER_PASSWORD" $secret $keys.password) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sema-maintenance.brokerUrl" -}}
{{- $broker := default dict .Values.broker -}}
{{- $host := include "sema-maintenance.bracketed" $broker.host -}}
{{- $url := printf "%s://%s:%s" (default "redis" $broker.scheme) $host (include "sema-maintenance.brokerPort" .) -}}
{{- if include "sema-maintenance.given" $broker.name -}}
{{- $url = printf "%s/%s" $url (include "sema-maintenance.text" $broker.name | urlquery | replace "+" "%20") -}}
{{- end -}}
{{- if $broker.query }}{{ $url = printf "%s?%s" $url $broker.query }}{{ end -}}
{{- $url -}}
{{- end -}}

{{/* A host as it stands before a port: an IPv6 address in brackets. */}}
{{- define "sema-maintenance.bracketed" -}}
{{- $host := toString . | trimAll "[]" -}}
{{- if contains ":" $host }}{{ printf "[%s]" $host }}{{ else }}{{ $host }}{{ end -}}
{{- end -}}

{{- define "sema-maintenance.brokerPort" -}}
{{- $broker := default dict .Values.broker -}}
{{- $own := dict "redis" 6379 "rediss" 6379 "amqp" 5672 "amqps" 5671 -}}
{{- $given := include "sema-maintenance.given" $broker.port -}}
{{- include "sema-maintenance.number" (ternary $broker.port (get $own (default "redis" $broker.scheme)) (eq $given "yes")) -}}
{{- end -}}

{{/* Every setting of `config` that is given, as its MAINT_ variable. */}}
{{- define "sema-maintenance.configEnv" -}}
{{- range $key, $value := default dict .Values.config }}
{{- if include "sema-maintenance.given" $value }}
- name: MAINT_{{ $key | snakecase | upper }}
  value: {{ include "sema-maintenance.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sema-maintenance.httpPort" -}}
{{- include "sema-maintenance.number" (default 9464 (default dict .Values.http).port) -}}
{{- end -}}

{{/* Whatever a component has in its environment: (dict "root" $ "needs" (list "broker" "policy" "http" "server" "release")). */}}
{{- define "sema-maintenance.env" -}}
{{- $root := .root -}}
{{- $release := default dict $root.Values.release -}}
{{- include "sema-maintenance.databaseEnv" (dict "root" $root "owner" (has "owner" .needs)) }}
{{- if has "broker" .needs }}
{{- include "sema-maintenance.brokerEnv" $root }}
{{- end }}
{{- if and (has "policy" .needs) (include "sema-maintenance.policyConfigMap" $root) }}
- name: MAINT_POLICY_FILE
  value: /etc/sema-maintenance/policy.toml
{{- end }}
{{- if has "http" .needs }}
- name: MAINT_HTTP_ADDRESS
  value: {{ printf "%s:%s" (default "0.0.0.0" (default dict $root.Values.http).host | include "sema-maintenance.bracketed") (include "sema-maintenance.httpPort" $root) | quote }}
{{- end }}
{{- if and (has "release" .needs) $release.existingSecret }}
- name: MAINT_RELEASE_TOKEN_FILE
  value: /etc/sema-release/token
{{- end }}
{{- include "sema-maintenance.configEnv" $root }}
{{- range default list $root.Values.extraEnv }}
{{- $variable := omit . "value" }}
{{- if hasKey . "value" }}{{ $_ := set $variable "value" (include "sema-maintenance.text" .value) }}{{ end }}
{{ list $variable | toYaml }}
{{- end }}
{{- end -}}

{{/* The ConfigMaps of the server first, so that nothing of them overrules what is ours. */}}
{{- define "sema-maintenance.envFrom" -}}
{{- $sources := list -}}
{{- if has "server" .needs -}}
{{- range default list (default dict .root.Values.server).existingConfigMaps -}}
{{- $sources = append $sources (dict "configMapRef" (dict "name" .)) -}}
{{- end -}}
{{- end -}}
{{- with concat $sources (default list .root.Values.extraEnvFrom) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "sema-maintenance.policyConfigMap" -}}
{{- $policy := default dict .Values.policy -}}
{{- if $policy.existingConfigMap -}}
{{- $policy.existingConfigMap -}}
{{- else if $policy.content -}}
{{- include "sema-maintenance.named" (dict "root" . "suffix" "policy") -}}
{{- end -}}
{{- end -}}
