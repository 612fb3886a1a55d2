{{- define "quafka.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Labels that never change: (list $ component). */ -}}
{{- define "quafka.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- /* Every template begins with labels, so that values are checked before they are used. */ -}}
{{- define "quafka.labels" -}}
{{- $root := index . 0 -}}
{{- include "quafka.validate" $root -}}
{{ include "quafka.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: quafka
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{- /* (list $ component): gateways and brokers may have versions of their own for a while. */ -}}
{{- define "quafka.image" -}}
{{- $root := index . 0 -}}
{{- $own := get (get $root.Values (index . 1) | default dict) "imageTag" -}}
{{ $root.Values.image.repository }}:{{ coalesce $own $root.Values.image.tag $root.Chart.AppVersion }}
{{- end -}}

{{- define "quafka.gatewayKeys" -}}
{{- if .Values.keys.create -}}{{ include "quafka.fullname" . }}-gateway-keys{{- else -}}{{ .Values.keys.gatewaySecret }}{{- end -}}
{{- end -}}

{{- define "quafka.brokerKeys" -}}
{{- if .Values.keys.create -}}{{ include "quafka.fullname" . }}-broker-keys{{- else -}}{{ .Values.keys.brokerSecret }}{{- end -}}
{{- end -}}

{{- define "quafka.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}{{ include "quafka.fullname" . }}-tls{{- else -}}{{ .Values.tls.secret }}{{- end -}}
{{- end -}}

{{- /* The name of a Service in the cluster: (list $ service). */ -}}
{{- define "quafka.host" -}}
{{- $root := index . 0 -}}
{{ index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{- /* The mesh address of a broker with a disk: (list $ number). */ -}}
{{- define "quafka.brokerAddress" -}}
{{- $root := index . 0 -}}
{{- $name := printf "%s-broker" (include "quafka.fullname" $root) -}}
{{ $name }}-{{ index . 1 }}.{{ include "quafka.host" (list $root $name) }}:9192
{{- end -}}
