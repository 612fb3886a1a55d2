{{- /* The listeners that are not null, as JSON. */ -}}
{{- define "quafka.listeners" -}}
{{- $found := dict -}}
{{- range $name, $listener := .Values.gateway.listeners -}}
{{- if $listener -}}
{{- $protocol := default "PLAINTEXT" $listener.protocol -}}
{{- $tls := has $protocol (list "SSL" "SASL_SSL") -}}
{{- $login := or (hasPrefix "SASL" $protocol) (has (default "" $listener.clientAuth) (list "required")) -}}
{{- $_ := set $found $name (merge (dict "protocol" $protocol "tls" $tls "login" $login) $listener) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{- /* Whether rules apply: as soon as one listener authenticates clients, to those of all listeners. */ -}}
{{- define "quafka.rules" -}}
{{- $authenticates := false -}}
{{- range fromJson (include "quafka.listeners" .) -}}
{{- if or (hasPrefix "SASL" .protocol) (has (default "" .clientAuth) (list "requested" "required")) -}}{{- $authenticates = true -}}{{- end -}}
{{- end -}}
{{- $config := .Values.gateway.config -}}
{{- $authorizer := default (ternary "acl" "none" $authenticates) (get $config "authorizer") -}}
{{- if and (eq $authorizer "acl") (ne (toString (get $config "allow.everyone.if.no.acl.found")) "true") -}}true{{- end -}}
{{- end -}}

{{- /* The address that a listener's clients get: (list $ name listener). */ -}}
{{- define "quafka.advertised" -}}
{{- $root := index . 0 -}}
{{- $listener := index . 2 -}}
{{- $name := include "quafka.fullname" $root -}}
{{- if $listener.advertised -}}
{{- $listener.advertised | replace "{pod}" "$(POD_INDEX)" -}}
{{- else if $root.Values.gateway.perPod -}}
$(POD_NAME).{{ include "quafka.host" (list $root (printf "%s-gateway" $name)) }}:{{ $listener.port }}
{{- else -}}
{{ include "quafka.host" (list $root $name) }}:{{ $listener.port }}
{{- end -}}
{{- end -}}

{{- define "quafka.advertisedListeners" -}}
{{- $all := list -}}
{{- range $name, $listener := fromJson (include "quafka.listeners" .) -}}
{{- $all = append $all (printf "%s://%s" (upper $name) (include "quafka.advertised" (list $ $name $listener))) -}}
{{- end -}}
{{- join "," $all -}}
{{- end -}}

{{- /* The settings of gateways that follow from other values, as JSON. */ -}}
{{- define "quafka.gatewaySettings" -}}
{{- $settings := dict -}}
{{- $listeners := list -}}
{{- $protocols := list -}}
{{- $orgs := list -}}
{{- $auth := list -}}
{{- $tls := false -}}
{{- range $name, $listener := fromJson (include "quafka.listeners" .) -}}
{{- $listeners = append $listeners (printf "%s://0.0.0.0:%d" (upper $name) (int $listener.port)) -}}
{{- $protocols = append $protocols (printf "%s:%s" (upper $name) $listener.protocol) -}}
{{- if $listener.org -}}{{- $orgs = append $orgs (printf "%s:%v" (upper $name) $listener.org) -}}{{- end -}}
{{- if $listener.clientAuth -}}{{- $auth = append $auth (printf "%s:%s" (upper $name) $listener.clientAuth) -}}{{- end -}}
{{- if $listener.tls -}}{{- $tls = true -}}{{- end -}}
{{- end -}}
{{- $_ := set $settings "listeners" $listeners -}}
{{- $_ := set $settings "listener.security.protocol.map" $protocols -}}
{{- /* The default: `listeners` replaces it, and the image has another. */ -}}
{{- $_ := set $settings "listen" "127.0.0.1:9092" -}}
{{- if not .Values.gateway.perPod -}}
{{- $_ := set $settings "advertised.listeners" (include "quafka.advertisedListeners" .) -}}
{{- end -}}
{{- if $orgs -}}{{- $_ := set $settings "listener.org" $orgs -}}{{- end -}}
{{- if $tls -}}
{{- $_ := set $settings "ssl.certfile" "/tls/tls.crt" -}}
{{- $_ := set $settings "ssl.keyfile" "/tls/tls.key" -}}
{{- end -}}
{{- if $auth -}}
{{- $_ := set $settings "ssl.client.auth" (prepend $auth "none") -}}
{{- $_ := set $settings "ssl.ca.file" "/tls-clients/ca.crt" -}}
{{- end -}}
{{- with .Values.gateway.superUsers -}}{{- $_ := set $settings "super.users" (join ";" .) -}}{{- end -}}
{{- $_ := set $settings "ops.listen" "0.0.0.0:9093" -}}
{{- if .Values.operations.tokenSecret -}}{{- $_ := set $settings "ops.token.file" "/operations/token" -}}{{- end -}}
{{- $_ := set $settings "node.key" "/node/node.key" -}}
{{- if eq .Values.storage "store" -}}
{{- $_ := set $settings "brokers" .Values.store.url -}}
{{- else -}}
{{- $_ := set $settings "mesh.allowed.file" "/keys/allowed" -}}
{{- if gt (int .Values.broker.replicas) 1 -}}
{{- $routes := list -}}
{{- range .Values.broker.routes -}}
{{- $routes = append $routes (printf "%s=%s" .match (include "quafka.brokerAddress" (list $ (int .broker)))) -}}
{{- end -}}
{{- $_ := set $settings "mesh.routes" (append $routes (printf "*=%s" (include "quafka.brokerAddress" (list . 0)))) -}}
{{- else -}}
{{- $_ := set $settings "mesh.peers" (include "quafka.brokerAddress" (list . 0)) -}}
{{- end -}}
{{- end -}}
{{- toJson $settings -}}
{{- end -}}

{{- define "quafka.gatewayPod" -}}
{{- $name := include "quafka.fullname" . -}}
{{- $listeners := fromJson (include "quafka.listeners" .) -}}
{{- $tls := false -}}
{{- $auth := false -}}
{{- range $listeners -}}
{{- if .tls -}}{{- $tls = true -}}{{- end -}}
{{- if .clientAuth -}}{{- $auth = true -}}{{- end -}}
{{- end -}}
metadata:
  labels:
    {{- include "quafka.selector" (list . "gateway") | nindent 4 }}
    {{- with .Values.gateway.podLabels }}{{ toYaml . | nindent 4 }}{{- end }}
  annotations:
    checksum/config: {{ include "quafka.gatewayConfig" . | sha256sum }}
    {{- with .Values.gateway.podAnnotations }}{{ toYaml . | nindent 4 }}{{- end }}
spec:
  serviceAccountName: {{ $name }}-gateway
  automountServiceAccountToken: false
  # The variables of a Service named quafka would begin with QUAFKA_, as settings do.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.gateway.terminationGracePeriodSeconds }}
  securityContext:
    {{- include "quafka.podSecurity" . | nindent 4 }}
  {{- include "quafka.placement" (list . .Values.gateway "gateway") | nindent 2 }}
  initContainers:
    {{- include "quafka.keyContainer" (list . "node.key" "gateway") | nindent 4 }}
  containers:
    - name: gateway
      image: {{ include "quafka.image" (list . "gateway") | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [gateway]
      envFrom:
        - configMapRef: {name: {{ $name }}-gateway}
        {{- if eq .Values.storage "store" }}
        {{- with default .Values.store.secret .Values.store.gatewaySecret }}
        - secretRef: {name: {{ . | quote }}}
        {{- end }}
        {{- end }}
      {{- if or .Values.gateway.perPod .Values.gateway.env }}
      env:
        {{- if .Values.gateway.perPod }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
        - name: QUAFKA_NODE_ID
          value: $(POD_INDEX)
        - name: QUAFKA_ADVERTISED_LISTENERS
          value: {{ include "quafka.advertisedListeners" . | quote }}
        {{- end }}
        {{- with .Values.gateway.env }}{{ toYaml . | nindent 8 }}{{- end }}
      {{- end }}
      ports:
        {{- range $listener, $each := $listeners }}
        - {name: {{ $listener }}, containerPort: {{ $each.port }}}
        {{- end }}
        - {name: ops, containerPort: 9093}
      {{- include "quafka.probes" . | nindent 6 }}
      lifecycle:
        # New connections end here until every node has heard that the pod is going.
        preStop: {exec: {command: [sleep, "5"]}}
      securityContext:
        {{- include "quafka.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml .Values.gateway.resources | nindent 8 }}
      volumeMounts:
        - {name: keys, mountPath: /keys, readOnly: true}
        - {name: node, mountPath: /node, readOnly: true}
        - {name: tmp, mountPath: /tmp}
        {{- if $tls }}
        - {name: tls, mountPath: /tls, readOnly: true}
        {{- end }}
        {{- if $auth }}
        - {name: tls-clients, mountPath: /tls-clients, readOnly: true}
        {{- end }}
        {{- if .Values.operations.tokenSecret }}
        - {name: operations, mountPath: /operations, readOnly: true}
        {{- end }}
        {{- with .Values.gateway.volumeMounts }}{{ toYaml . | nindent 8 }}{{- end }}
  volumes:
    - name: keys
      secret: {secretName: {{ include "quafka.gatewayKeys" . | quote }}, defaultMode: 0440}
    - name: node
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    - name: tmp
      emptyDir: {}
    {{- if $tls }}
    - name: tls
      secret: {secretName: {{ include "quafka.tlsSecret" . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if $auth }}
    - name: tls-clients
      secret: {secretName: {{ default (include "quafka.tlsSecret" .) .Values.tls.clientCaSecret | quote }}, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}
    {{- end }}
    {{- with .Values.operations.tokenSecret }}
    - name: operations
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.gateway.volumes }}{{ toYaml . | nindent 4 }}{{- end }}
{{- end -}}

{{- define "quafka.gatewayConfig" -}}
{{- include "quafka.variables" (fromJson (include "quafka.gatewaySettings" .)) }}
{{- include "quafka.variables" .Values.gateway.config }}
{{- include "quafka.telemetry" . }}
{{- if eq .Values.storage "store" }}
{{- range $variable, $value := .Values.store.env }}
{{ $variable }}: {{ include "quafka.text" $value | quote }}
{{- end }}
{{- end }}
{{- end -}}
