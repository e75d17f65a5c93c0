#!/usr/bin/env bash
#
# Refuses pods with the label webhook-e2e-test=webhook-disallow and pods with a container whose name contains
# webhook-disallow, and gives all reasons at once. With webhook-e2e-test=wait-forever it never answers, which shows
# what the operator does with such a hook.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: pods.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", pods]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
YAML
}

__main__() {
  local verdict
  verdict=$(context::jq -r '
    .review.request
    | if .resource != {group: "", version: "v1", resource: "pods"} then "expected core/v1 pods"
      elif .object.metadata.labels["webhook-e2e-test"] == "wait-forever" then "wait-forever"
      else
        [ (select(.object.metadata.labels["webhook-e2e-test"] == "webhook-disallow")
            | "the pod contains unwanted label"),
          (select(any(.object.spec.containers[]; .name | contains("webhook-disallow")))
            | "the pod contains unwanted container name")
        ] | join("; ")
      end')

  case $verdict in
    "") hook::allow ;;
    wait-forever) sleep infinity ;;
    *) hook::deny "$verdict" ;;
  esac
}

hook::run "$@"
