{{- /* How console and test connect: (list $ listener secret), as properties of a Kafka client. */ -}}
{{- define "quafka.clientProperties" -}}
{{- $root := index . 0 -}}
{{- $listener := get (fromJson (include "quafka.listeners" $root)) (index . 1) -}}
security.protocol={{ $listener.protocol }}
{{- if and $listener.tls $root.Values.tls.caKey }}
ssl.ca.location=/tls/{{ $root.Values.tls.caKey }}
{{- end }}
{{- end -}}

{{- /* host:port at which clients begin, a name in the listener's certificate: (list $ listener). */ -}}
{{- define "quafka.bootstrap" -}}
{{- $root := index . 0 -}}
{{- $listener := get (fromJson (include "quafka.listeners" $root)) (index . 1) -}}
{{- if $listener.advertised -}}
{{- $listener.advertised | replace "{pod}" "0" -}}
{{- else -}}
{{ include "quafka.host" (list $root (include "quafka.fullname" $root)) }}:{{ $listener.port }}
{{- end -}}
{{- end -}}

{{- define "quafka.clientMounts" -}}
{{- $root := index . 0 -}}
{{- $listener := get (fromJson (include "quafka.listeners" $root)) (index . 1) -}}
- {name: client, mountPath: /client, readOnly: true}
{{- if and $listener.tls $root.Values.tls.caKey }}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end -}}

{{- /* (list $ listener secret name): the Secret, or the part of the chart's ConfigMap. */ -}}
{{- define "quafka.clientVolumes" -}}
{{- $root := index . 0 -}}
{{- $listener := get (fromJson (include "quafka.listeners" $root)) (index . 1) -}}
- name: client
  {{- if index . 2 }}
  secret: {secretName: {{ index . 2 | quote }}, defaultMode: 0440}
  {{- else }}
  configMap: {name: {{ include "quafka.fullname" $root }}-client, items: [{key: {{ index . 3 }}.properties, path: client.properties}]}
  {{- end }}
{{- if and $listener.tls $root.Values.tls.caKey }}
- name: tls
  secret: {secretName: {{ include "quafka.tlsSecret" $root | quote }}, defaultMode: 0440, items: [{key: {{ $root.Values.tls.caKey }}, path: {{ $root.Values.tls.caKey }}}]}
{{- end }}
{{- end -}}
