#!/usr/bin/env bash
#
# Refuses custom resources whose data holds webhook-e2e-test: webhook-disallow, and the deletion of those that hold
# webhook-nondeletable. Shows rules for resources that are not known beforehand: everything in the API group
# AGNHOST_CUSTOM_GROUP. On DELETE there is only the old object.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: custom-resource.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", custom-resource]}
  rules:
  - apiGroups: [${AGNHOST_CUSTOM_GROUP:-webhook-e2e.example.com}]
    apiVersions: ["*"]
    resources: ["*"]
    operations: [CREATE, UPDATE, DELETE]
YAML
}

# The whole decision is one jq program, and what it prints is the answer.
__main__() {
  context::jq '
    def deny($reason): {allowed: false, status: {reason: $reason}};
    def mark: .data["webhook-e2e-test"]? // "";

    .review.request
    | if .operation == "DELETE" and (.oldObject | mark) == "webhook-nondeletable"
      then deny("the custom resource cannot be deleted because it contains unwanted key and value")
      elif .operation != "DELETE" and (.object | mark) == "webhook-disallow"
      then deny("the custom resource contains unwanted data")
      else {allowed: true} end' >"$ADMISSION_RESPONSE_PATH"
}

hook::run "$@"
