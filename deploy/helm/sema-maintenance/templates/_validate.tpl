{{/* What the schema cannot see, each as a sentence. */}}
{{- define "sema-maintenance.problems" -}}
{{- $said := list -}}
{{- $database := default dict .Values.database -}}
{{- $keys := default dict $database.keys -}}
{{- $broker := default dict .Values.broker -}}
{{- $brokerKeys := default dict $broker.keys -}}
{{- $config := default dict .Values.config -}}
{{- $release := default dict .Values.release -}}
{{- $policy := default dict .Values.policy -}}
{{- $migration := default dict .Values.migration -}}
{{- $owner := default dict $migration.database -}}
{{- $ownerKeys := default dict $owner.keys -}}
{{- $autoscaling := default dict (default dict .Values.worker).autoscaling -}}

{{- if not (or $database.host $keys.host $keys.url) -}}
{{- $said = append $said "database.host is not set: name the host of the ledger's Postgres, or the key of a Secret that holds it in database.keys.host or database.keys.url" -}}
{{- end -}}
{{- if not (or $database.name $keys.name $keys.url) -}}
{{- $said = append $said "database.name is not set: name the ledger's database, or the key of a Secret that holds it in database.keys.name" -}}
{{- end -}}
{{- range $part := list "user" "host" "port" "name" "url" -}}
{{- if and (get $keys $part) (not $database.existingSecret) -}}
{{- $said = append $said (printf "database.keys.%s names a key and database.existingSecret no Secret: name the Secret, or remove the key" $part) -}}
{{- end -}}
{{- if and $keys.url (ne $part "port") (ne $part "url") (or (get $keys $part) (get $database $part)) -}}
{{- $said = append $said (printf "database.keys.url holds the whole address, and the %s is set as well: keep one of them" $part) -}}
{{- end -}}
{{- end -}}
{{- if and $keys.url (or $owner.host $owner.port $owner.user $owner.existingSecret) -}}
{{- $said = append $said "migration.database needs host, user and password on their own, and database.keys.url holds a whole address: set database.host, name and user instead" -}}
{{- end -}}
{{- if and $ownerKeys.user (not $owner.existingSecret) -}}
{{- $said = append $said "migration.database.keys.user names a key and migration.database.existingSecret no Secret: name the Secret, or remove the key" -}}
{{- end -}}

{{- if not (or $broker.host $brokerKeys.url) -}}
{{- $said = append $said "broker.host is not set: name the host of a Redis, Valkey or RabbitMQ, or the key of a Secret that holds its address in broker.keys.url" -}}
{{- end -}}
{{- range $part := list "user" "url" -}}
{{- if and (get $brokerKeys $part) (not $broker.existingSecret) -}}
{{- $said = append $said (printf "broker.keys.%s names a key and broker.existingSecret no Secret: name the Secret, or remove the key" $part) -}}
{{- end -}}
{{- end -}}
{{- range $part := list "host" "user" -}}
{{- if and $brokerKeys.url (get $broker $part) -}}
{{- $said = append $said (printf "broker.keys.url holds the whole address, and broker.%s is set as well: keep one of them" $part) -}}
{{- end -}}
{{- end -}}
{{- if contains "@" (toString $broker.host) -}}
{{- $said = append $said "broker.host holds a user or a password: put the user into broker.user and the password into a Secret" -}}
{{- end -}}

{{- if and $policy.content $policy.existingConfigMap -}}
{{- $said = append $said "policy.content and policy.existingConfigMap are both set: keep one of them" -}}
{{- end -}}
{{- $backend := default "postgres" $config.releaseBackend | lower -}}
{{- if and (eq $backend "http") (not $config.releaseUrl) -}}
{{- $said = append $said "config.releaseBackend is http, and config.releaseUrl says nothing of where to: set it" -}}
{{- end -}}
{{- if ne $backend "http" -}}
{{- range $name, $value := dict "config.releaseUrl" $config.releaseUrl "release.existingSecret" $release.existingSecret -}}
{{- if $value -}}
{{- $said = append $said (printf "%s has no use with config.releaseBackend %s: remove it, or set that to http" $name $backend) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if $autoscaling.enabled -}}
{{- if gt (int64 (default 1 $autoscaling.minReplicas)) (int64 (default 1 $autoscaling.maxReplicas)) -}}
{{- $said = append $said "worker.autoscaling.minReplicas is more than worker.autoscaling.maxReplicas: lower the first or raise the second" -}}
{{- end -}}
{{- if not (or $autoscaling.metrics (include "sema-maintenance.given" $autoscaling.targetCPUUtilizationPercentage) (include "sema-maintenance.given" $autoscaling.targetMemoryUtilizationPercentage)) -}}
{{- $said = append $said "worker.autoscaling has nothing to go by: set a target, or metrics" -}}
{{- end -}}
{{- end -}}
{{- range $component := list "worker" "beat" -}}
{{- $values := default dict (get $.Values $component) -}}
{{- $budget := default dict $values.podDisruptionBudget -}}
{{- $least := include "sema-maintenance.given" $budget.minAvailable -}}
{{- if and $budget.enabled (not (or $least (include "sema-maintenance.given" $budget.maxUnavailable))) -}}
{{- $said = append $said (printf "%s.podDisruptionBudget says neither maxUnavailable nor minAvailable: set one of them" $component) -}}
{{- end -}}
{{- end -}}

{{- $network := default dict .Values.networkPolicy -}}
{{- if and $network.enabled (or $keys.url $keys.port) (not $network.databasePorts) -}}
{{- $said = append $said "networkPolicy cannot know a port that is in a Secret: set networkPolicy.databasePorts" -}}
{{- end -}}
{{- if and $network.enabled $brokerKeys.url (not $network.brokerPorts) -}}
{{- $said = append $said "networkPolicy cannot know a port that is in a Secret: set networkPolicy.brokerPorts" -}}
{{- end -}}

{{- $set := list "MAINT_DATABASE_URL" "MAINT_BROKER_URL" "MAINT_BROKER_USER" "MAINT_BROKER_PASSWORD" "MAINT_POLICY_FILE" "MAINT_HTTP_ADDRESS" "MAINT_RELEASE_TOKEN_FILE" "PGHOST" "PGPORT" "PGDATABASE" "PGUSER" "PGPASSWORD" "PGSSLMODE" "MAINT_JOB_BUDGET" -}}
{{- range $key, $_ := $config }}{{ $set = append $set (printf "MAINT_%s" ($key | snakecase | upper)) }}{{ end -}}
{{- $seen := list -}}
{{- range default list .Values.extraEnv -}}
{{- if has .name $set -}}
{{- $said = append $said (printf "extraEnv sets %s, which has a value of its own in this chart: use that" .name) -}}
{{- else if has .name $seen -}}
{{- $said = append $said (printf "extraEnv sets %s twice: keep one of them" .name) -}}
{{- end -}}
{{- $seen = append $seen .name -}}
{{- end -}}
{{- join "\n" $said -}}
{{- end -}}
