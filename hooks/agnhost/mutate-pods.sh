#!/usr/bin/env bash
#
# Gives the pod webhook-to-be-mutated an init container, unless it has one. Shows that the API server fills in
# defaults after the patch, and a mutation that changes nothing when it is asked a second time.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesMutating:
- name: mutate-pods.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", mutate-pods]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
YAML
}

__main__() {
  hook::patch "$(context::jq -c '
    .review.request.object
    | if .metadata.name == "webhook-to-be-mutated" and (.spec.initContainers // []) == [] then
        [{ op: "add", path: "/spec/initContainers",
           value: [{name: "webhook-added-init-container", image: "webhook-added-image", resources: {}}] }]
      else [] end')"
}

hook::run "$@"
