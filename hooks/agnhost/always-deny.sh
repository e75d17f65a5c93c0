#!/usr/bin/env bash
#
# Denies every request. The first binding is good for finding out whether a registration has reached the API server.
# The second would forbid deleting webhook configurations; the API server never asks about those, so nobody can lock
# themselves out. Being a nuisance, it is not among the hooks that the value "true" selects.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: always-deny.agnhost.example.com
  namespace:
    labelSelector:
      matchLabels: {${AGNHOST_SELECTOR_LABEL:-webhook-e2e}: always-deny}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
- name: always-deny-webhooks.agnhost.example.com
  labelSelector:
    matchLabels: {${AGNHOST_SELECTOR_LABEL:-webhook-e2e}: always-deny}
  rules:
  - apiGroups: [admissionregistration.k8s.io]
    apiVersions: ["*"]
    resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
    operations: [DELETE]
YAML
}

__main__() {
  hook::deny "this webhook denies all requests"
}

hook::run "$@"
