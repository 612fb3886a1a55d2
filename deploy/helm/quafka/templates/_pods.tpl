{{- define "quafka.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "quafka.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* A setting's value as text: lists with commas, whole numbers without an exponent. */ -}}
{{- define "quafka.text" -}}
{{- if kindIs "slice" . -}}
{{- $texts := list -}}
{{- range . -}}{{- $texts = append $texts (include "quafka.text" .) -}}{{- end -}}
{{- join "," $texts -}}
{{- else if kindIs "string" . -}}
{{- . -}}
{{- else -}}
{{- toJson . -}}
{{- end -}}
{{- end -}}

{{- /* Settings as variables, which also win over those of the image: a dict of names and values. */ -}}
{{- define "quafka.variables" -}}
{{- range $name, $value := . }}
QUAFKA_{{ $name | replace "." "_" | upper }}: {{ include "quafka.text" $value | quote }}
{{- end }}
{{- end -}}

{{- /* Startup may take long: a broker reads its log, or imports. Only a program that hangs is ended. */ -}}
{{- define "quafka.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: ops}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: ops}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end -}}

{{- /* The key's file must be its user's alone, which a file of a Secret cannot be: (list $ file component). */ -}}
{{- define "quafka.keyContainer" -}}
{{- $root := index . 0 -}}
- name: key
  image: {{ include "quafka.image" (list $root (index . 2)) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [sh, -ec, {{ printf "install -m 0600 /keys/%s /node/node.key" (index . 1) | quote }}]
  env:
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
  securityContext:
    {{- include "quafka.containerSecurity" $root | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 16Mi}
    limits: {memory: 64Mi}
  volumeMounts:
    - {name: keys, mountPath: /keys, readOnly: true}
    - {name: node, mountPath: /node}
{{- end -}}

{{- define "quafka.telemetry" -}}
{{- with .Values.telemetry.otlpEndpoint }}
OTEL_EXPORTER_OTLP_ENDPOINT: {{ . | quote }}
OTEL_METRICS_EXPORTER: {{ $.Values.telemetry.metrics | quote }}
{{- end }}
{{- end -}}

{{- /* What places the pods: (list $ values component). */ -}}
{{- define "quafka.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "quafka.selector" (list $root (index $ 2)) | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}
