#!/usr/bin/env bash
#
# Lets workloads pass, but warns about images without a version: no tag at all, or the tag latest.
# Opt in with: kubectl label namespace <name> policy.example.com/enforce=true

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<'YAML'
configVersion: v1
kubernetesValidating:
- name: warn-latest-tag.policy.example.com
  namespace:
    labelSelector:
      matchLabels: {policy.example.com/enforce: "true"}
  # A warning is not worth an outage.
  failurePolicy: Ignore
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}
  - apiGroups: [apps]
    apiVersions: [v1]
    resources: [deployments, statefulsets, daemonsets]
    operations: [CREATE, UPDATE]
YAML
}

__on_validating::warn-latest-tag.policy.example.com() {
  local found warnings
  # An image is registry/path:tag@digest, and the registry may have a port: only the last segment holds the tag.
  found=$(context::jq -r '
    .review.request.object.spec
    | .template.spec // .
    | (.initContainers, .containers)[]?
    | select(.image | contains("@") | not)
    | select(.image | split("/") | last | (contains(":") | not) or endswith(":latest"))
    | "container \(.name): image \(.image) has no fixed version"')
  warnings=()
  [[ -z $found ]] || mapfile -t warnings <<<"$found"
  hook::warn "${warnings[@]}"
}

hook::run "$@"
