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

{{- if eq "false" (toString .Values.enabled) -}}
{{- $said = append $said "enabled is for a parent chart, as the condition of this dependency: name it there as the condition, or remove it" -}}
{{- end -}}
{{- if not (default dict .Values.image).repository -}}
{{- $said = append $said "image.repository is not set: name the repository of the worker's image" -}}
{{- end -}}
{{- range $path, $host := dict "database.host" $database.host "migration.database.host" $owner.host "broker.host" $broker.host "http.host" (default dict .Values.http).host -}}
{{- range splitList "," (default "" $host | toString) -}}
{{- if contains "@" . -}}
{{- $said = append $said (printf "%s holds a user or a password: name the host alone, the user beside it, and the password in a Secret" $path) -}}
{{- else if contains "://" . -}}
{{- $said = append $said (printf "%s holds a whole address: name the host alone" $path) -}}
{{- else if regexMatch "^([^:]*|\\[.*\\]):[0-9]*$" . -}}
{{- $said = append $said (printf "%s holds a port: name the host alone, and the port in %sport" $path (trimSuffix "host" $path)) -}}
{{- else if or (regexMatch "\\s" .) (and (contains "/" .) (not (contains "database" $path))) (and (contains ":" .) (not (regexMatch "^\\[?[0-9A-Fa-f:.]+(%[0-9A-Za-z._-]+)?\\]?$" .))) -}}
{{- $said = append $said (printf "%s is no host: write a name or an IP address" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $path, $value := dict "config.releaseUrl" $config.releaseUrl "broker.query" $broker.query -}}
{{- $text := default "" $value | toString -}}
{{- if or (regexMatch "^[A-Za-z]+://[^/?]*@" $text) (regexMatch "(?i)(^|[?&])[a-z_-]*(password|passwd|pwd|secret|token|api_?key)=[^{&]" $text) -}}
{{- $said = append $said (printf "%s holds a password: put it into a Secret, named in %s" $path (ternary "release.existingSecret" "broker.existingSecret" (hasPrefix "config" $path))) -}}
{{- end -}}
{{- end -}}

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
{{- $other := dict "database.keys.port" $keys.port "database.sslMode" $database.sslMode "database.port" (ternary "" $database.port (eq "5432" (include "sema-maintenance.text" (default 5432 $database.port)))) -}}
{{- range $path, $value := $other -}}
{{- if and $keys.url (include "sema-maintenance.given" $value) -}}
{{- $said = append $said (printf "database.keys.url holds the whole address, and %s is set as well: write it into the address, and remove it here" $path) -}}
{{- end -}}
{{- end -}}
{{- if and $keys.url (or $owner.host $owner.port $owner.user $owner.existingSecret) -}}
{{- $said = append $said "migration.database needs host, user and password on their own, and database.keys.url holds a whole address: set database.host, name and user instead" -}}
{{- end -}}
{{- if and $owner.existingSecret (not (or $owner.user $ownerKeys.user)) -}}
{{- $said = append $said "migration.database.existingSecret holds a password, and nothing says whose: set migration.database.user, or the key of the user in that Secret in migration.database.keys.user" -}}
{{- end -}}
{{- if and $migration.hooks (include "sema-maintenance.given" $migration.revision) -}}
{{- $said = append $said "migration.revision has no use with migration.hooks, whose Job is made anew each time: remove one of them" -}}
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
{{- if and $brokerKeys.url $brokerKeys.user -}}
{{- $said = append $said "broker.keys.url holds the whole address, and broker.keys.user is set as well: keep one of them" -}}
{{- end -}}
{{- range $part := list "host" "port" "name" "query" "user" "scheme" -}}
{{- $value := get $broker $part -}}
{{- if and $brokerKeys.url (include "sema-maintenance.given" $value) (ne "scheme redis" (printf "%s %v" $part $value)) -}}
{{- $said = append $said (printf "broker.keys.url holds the whole address, and broker.%s is set as well: keep one of them" $part) -}}
{{- end -}}
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
{{- $resources := default dict (default dict .Values.worker).resources -}}
{{- range $resource, $target := dict "cpu" "targetCPUUtilizationPercentage" "memory" "targetMemoryUtilizationPercentage" -}}
{{- $named := or (include "sema-maintenance.given" (get (default dict $resources.requests) $resource)) (include "sema-maintenance.given" (get (default dict $resources.limits) $resource)) -}}
{{- if and (include "sema-maintenance.given" (get $autoscaling $target)) (not $named) -}}
{{- $said = append $said (printf "worker.autoscaling.%s is a share of what is requested, and worker.resources.requests.%s is not set: set it, or set the target to null" $target $resource) -}}
{{- end -}}
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
{{- if and $budget.enabled (include "sema-maintenance.blocks" $values) -}}
{{- $said = append $said (printf "%s.podDisruptionBudget lets no pod go, so that no node could be drained: allow one, or set more replicas" $component) -}}
{{- end -}}
{{- end -}}

{{- $disabled := default list (default dict (default dict .Values.metrics).prometheusRule).disabledAlerts -}}
{{- if $disabled -}}
{{- $alerts := list -}}
{{- range $path, $_ := .Files.Glob "files/rules/*.yaml" -}}
{{- range default list ($.Files.Get $path | fromYaml).groups -}}
{{- range .rules }}{{ with .alert }}{{ $alerts = append $alerts . }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $disabled -}}
{{- if not (has . $alerts) -}}
{{- $said = append $said (printf "metrics.prometheusRule.disabledAlerts names %s, which is no alert of this chart: see files/rules" .) -}}
{{- end -}}
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

{{/* Whether a budget lets none of a component's pods go; shares are rounded up, as Kubernetes does. */}}
{{- define "sema-maintenance.blocks" -}}
{{- $autoscaling := default dict .autoscaling -}}
{{- $replicas := ternary $autoscaling.minReplicas .replicas (eq true $autoscaling.enabled) -}}
{{- $pods := include "sema-maintenance.number" (ternary 1 $replicas (kindIs "invalid" $replicas)) | int64 -}}
{{- $budget := .podDisruptionBudget -}}
{{- $least := include "sema-maintenance.given" $budget.minAvailable -}}
{{- $text := include "sema-maintenance.text" (ternary $budget.minAvailable $budget.maxUnavailable (eq $least "yes")) -}}
{{- $number := trimSuffix "%" $text | int64 -}}
{{- if $least -}}
{{- if hasSuffix "%" $text }}{{ $number = div (add (mul $number $pods) 99) 100 }}{{ end -}}
{{- if and $pods (ge $number $pods) }}yes{{ end -}}
{{- else if and (include "sema-maintenance.given" $budget.maxUnavailable) (eq $number 0) -}}
yes
{{- end -}}
{{- end -}}
