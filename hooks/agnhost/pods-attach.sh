#!/usr/bin/env bash
#
# Forbids attaching to the standard input of container1 in the pod to-be-attached-pod. Shows a CONNECT request: it
# concerns a subresource, and its object is not the pod but the PodAttachOptions.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<YAML
configVersion: v1
kubernetesValidating:
- name: pods-attach.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", pods-attach]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods/attach], operations: [CONNECT]}
YAML
}

__main__() {
  if context::jq -e '.review.request
    | .name == "to-be-attached-pod" and .object.stdin == true and .object.container == "container1"' >/dev/null
  then
    hook::deny "attaching to pod 'to-be-attached-pod' is not allowed"
  else
    hook::allow
  fi
}

hook::run "$@"
