{{- /* The settings of brokers that follow from other values, as JSON. */ -}}
{{- define "quafka.brokerSettings" -}}
{{- $settings := dict -}}
{{- $_ := set $settings "mesh.listen" "0.0.0.0:9192" -}}
{{- $_ := set $settings "mesh.allowed.file" "/keys/allowed" -}}
{{- $_ := set $settings "ops.listen" "0.0.0.0:9193" -}}
{{- if .Values.operations.tokenSecret -}}{{- $_ := set $settings "ops.token.file" "/operations/token" -}}{{- end -}}
{{- if eq .Values.storage "store" -}}
{{- $_ := set $settings "data" .Values.store.url -}}
{{- $_ := set $settings "cache" "/var/lib/quafka/cache" -}}
{{- $_ := set $settings "store.shards" .Values.store.shards -}}
{{- else -}}
{{- /* A folder in the volume: the volume's own has the group's mode, and perhaps lost+found. */ -}}
{{- $_ := set $settings "data" "/var/lib/quafka/data" -}}
{{- $_ := set $settings "node.key" "/node/node.key" -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{- define "quafka.brokerConfig" -}}
{{- include "quafka.variables" (fromJson (include "quafka.brokerSettings" .)) }}
{{- include "quafka.variables" .Values.broker.config }}
{{- include "quafka.telemetry" . }}
{{- if eq .Values.storage "store" }}
{{- range $variable, $value := .Values.store.env }}
{{ $variable }}: {{ include "quafka.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}
