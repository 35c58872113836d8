{{- define "elasticjob.selector" -}}
app.kubernetes.io/name: elasticjob-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "elasticjob.labels" -}}
{{ include "elasticjob.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "elasticjob.hubSelector" -}}
app.kubernetes.io/name: elasticjob-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "elasticjob.hubLabels" -}}
{{ include "elasticjob.hubSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
