{{- /* What values.schema.json cannot say: values that contradict each other. */ -}}
{{- define "quafka.validate" -}}
{{- $listeners := fromJson (include "quafka.listeners" .) -}}
{{- if not $listeners -}}{{- fail "gateway.listeners is empty: clients need one" -}}{{- end -}}
{{- $ports := dict "9093" "the operations pages" -}}
{{- $auth := false -}}
{{- range $name, $listener := $listeners -}}
{{- $where := printf "gateway.listeners.%s" $name -}}
{{- $port := toString $listener.port -}}
{{- if hasKey $ports $port -}}{{- fail (printf "%s.port: %s is the port of %s" $where $port (get $ports $port)) -}}{{- end -}}
{{- $_ := set $ports $port (printf "the listener %s" $name) -}}
{{- if and $listener.tls (not (include "quafka.tlsSecret" $)) -}}{{- fail (printf "%s.protocol is %s: set tls.secret, or tls.certManager.enabled" $where $listener.protocol) -}}{{- end -}}
{{- if and $listener.clientAuth (not $listener.tls) -}}{{- fail (printf "%s.clientAuth needs protocol SSL or SASL_SSL" $where) -}}{{- end -}}
{{- if and (eq $listener.protocol "SASL_PLAINTEXT") (ne (toString (get $.Values.gateway.config "listener.allow.plaintext.sasl")) "true") -}}{{- fail (printf "%s.protocol: with SASL_PLAINTEXT passwords cross the network in clear text; take SASL_SSL, or set gateway.config.listener.allow.plaintext.sasl: true" $where) -}}{{- end -}}
{{- if and $listener.expose (not $listener.advertised) -}}{{- fail (printf "%s.advertised: set host:port at which clients outside reach it" $where) -}}{{- end -}}
{{- if and $listener.expose $.Values.gateway.perPod (not (contains "{pod}" $listener.advertised)) -}}{{- fail (printf "%s.advertised: with gateway.perPod each pod needs an address of its own, such as kafka-{pod}.example.org:9095" $where) -}}{{- end -}}
{{- if and $listener.advertised (contains "{pod}" $listener.advertised) (not $.Values.gateway.perPod) -}}{{- fail (printf "%s.advertised: {pod} needs gateway.perPod" $where) -}}{{- end -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef) -}}{{- fail "tls.certManager.issuerRef: name an Issuer or ClusterIssuer" -}}{{- end -}}
{{- if eq .Values.storage "store" -}}
{{- if not .Values.store.url -}}{{- fail "store.url: set it, such as s3://bucket/prefix" -}}{{- end -}}
{{- if .Values.broker.routes -}}{{- fail "broker.routes is for storage: disk; in a store, gateway.config.mesh.routes pins topics to shards" -}}{{- end -}}
{{- else -}}
{{- if hasKey .Values.gateway.config "mesh.routes" -}}{{- fail "gateway.config.mesh.routes: with storage: disk, set broker.routes" -}}{{- end -}}
{{- if .Values.store.url -}}{{- fail "store.url is set, but storage is disk: set storage: store" -}}{{- end -}}
{{- if and (gt (int .Values.broker.replicas) 1) (not .Values.broker.routes) -}}{{- fail "broker.replicas: brokers with disks do not share topics. Say in broker.routes which topics are at brokers 1 and above, or take storage: store" -}}{{- end -}}
{{- range .Values.broker.routes -}}
{{- if ge (int .broker) (int $.Values.broker.replicas) -}}{{- fail (printf "broker.routes: there is no broker %d, broker.replicas is %d" (int .broker) (int $.Values.broker.replicas)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.keys.create) (not (and .Values.keys.gatewaySecret .Values.keys.brokerSecret)) -}}{{- fail "keys.create is false: set keys.gatewaySecret and keys.brokerSecret" -}}{{- end -}}
{{- range $which := list "console" "test" -}}
{{- $values := get $.Values $which -}}
{{- if $values.enabled -}}
{{- $listener := get $listeners $values.listener -}}
{{- if not $listener -}}{{- fail (printf "%s.listener: there is no listener %s" $which $values.listener) -}}{{- end -}}
{{- if and $listener.login (not $values.commandConfigSecret) (or (eq $which "test") (eq $listener.clientAuth "required")) -}}{{- fail (printf "%s: the listener %s asks for a login; set %s.commandConfigSecret, another listener, or %s.enabled: false" $which $values.listener $which $which) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.test.enabled (include "quafka.rules" .) (not .Values.test.commandConfigSecret) (not (has "User:ANONYMOUS" .Values.gateway.superUsers)) -}}{{- fail "test: clients that do not log in are User:ANONYMOUS, which no rule allows anything at first; set test.commandConfigSecret and a test.listener that asks for a login, or test.enabled: false" -}}{{- end -}}
{{- if and .Values.console.ingress.enabled (not .Values.console.ingress.host) -}}{{- fail "console.ingress.host: set the name that browsers use" -}}{{- end -}}
{{- range $pod := list "gateway" "broker" "console" -}}
{{- range $each := (get $.Values $pod).env -}}
{{- if hasPrefix "QUAFKA_" $each.name -}}{{- if not (hasPrefix "QUAFKA_REDIS_" $each.name) -}}{{- fail (printf "%s.env: %s is a setting; set it in %s.config" $pod $each.name $pod) -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
