{{/* Any single value as text. WHY not toString: Helm reads a whole number as a float, 1e+06. */}}
{{- define "sema-maintenance.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* A whole number, also where it was given as text, or a percentage in quotes. */}}
{{- define "sema-maintenance.number" -}}
{{- $text := include "sema-maintenance.text" . -}}
{{- if hasSuffix "%" $text }}{{ $text | quote }}{{ else }}{{ int64 $text }}{{ end -}}
{{- end -}}

{{/* Whether anything was given: 0 and false are something, null and "" are not. */}}
{{- define "sema-maintenance.given" -}}
{{- if not (or (kindIs "invalid" .) (and (kindIs "string" .) (eq . ""))) }}yes{{ end -}}
{{- end -}}

{{/* "key: number" for each of a list of keys that a map has: (list MAP KEY …). */}}
{{- define "sema-maintenance.numbers" -}}
{{- $map := default dict (first .) -}}
{{- $lines := list -}}
{{- range rest . -}}
{{- $value := get $map . -}}
{{- if include "sema-maintenance.given" $value -}}
{{- $lines = append $lines (printf "%s: %s" . (include "sema-maintenance.number" $value)) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}

{{/* A map or list as YAML without what is null in it, at its first level and the next. */}}
{{- define "sema-maintenance.yaml" -}}
{{- if kindIs "map" . -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $inner := dict -}}
{{- range $k, $v := $value }}{{ if not (kindIs "invalid" $v) }}{{ $_ := set $inner $k $v }}{{ end }}{{ end -}}
{{- $_ := set $kept $key $inner -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- if $kept }}{{ toYaml $kept }}{{ end -}}
{{- else if . -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* Seconds that a worker may need to end: it counts a part as lost two minutes past its budget. */}}
{{- define "sema-maintenance.grace" -}}
{{- add 120 (include "sema-maintenance.seconds" (default "5m" (default dict .Values.config).jobBudget) | int64) -}}
{{- end -}}

{{/* Whole seconds of a duration such as 1h30m, rounded up. */}}
{{- define "sema-maintenance.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 "w" 604800.0 -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9]+(?:\\.[0-9]+)?(?:ms|[wdhms])" (toString .) -1 -}}
{{- $unit := regexFind "(ms|[wdhms])$" . -}}
{{- $total = addf $total (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- ceil $total | int64 -}}
{{- end -}}
