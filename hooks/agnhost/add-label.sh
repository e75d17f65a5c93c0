#!/usr/bin/env bash
#
# Gives objects the label added-label=yes. Shows that a JSON Patch depends on what is already there: no labels at
# all, labels without this one, or this one with another value. When nothing is missing, nothing is patched.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesMutating:
- name: add-label.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", add-label]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
- name: add-label-webhooks.agnhost.example.com
  labelSelector:
    matchExpressions:
    - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", add-label]}
  rules:
  - apiGroups: [admissionregistration.k8s.io]
    apiVersions: ["*"]
    resources: [validatingwebhookconfigurations, mutatingwebhookconfigurations]
    operations: [CREATE]
YAML
}

__main__() {
  hook::patch "$(context::jq -c '
    .review.request.object.metadata.labels
    | if . == null or . == {} then [{op: "add", path: "/metadata/labels", value: {"added-label": "yes"}}]
      elif has("added-label") | not then [{op: "add", path: "/metadata/labels/added-label", value: "yes"}]
      elif .["added-label"] != "yes" then [{op: "replace", path: "/metadata/labels/added-label", value: "yes"}]
      else [] end')"
}

hook::run "$@"
