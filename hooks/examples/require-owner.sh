#!/usr/bin/env bash
#
# Refuses Namespaces and Deployments that do not say who owns them, and tells the user what to write.
# Opt in with: kubectl label namespace <name> policy.example.com/enforce=true

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  cat <<'YAML'
configVersion: v1
kubernetesValidating:
- name: require-owner.policy.example.com
  namespace:
    labelSelector:
      matchLabels: {policy.example.com/enforce: "true"}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [namespaces], operations: [CREATE, UPDATE]}
  - {apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}
YAML
}

__on_validating::require-owner.policy.example.com() {
  local subject
  subject=$(context::jq -r '
    .review.request.object
    | select((.metadata.labels.owner // "") == "")
    | "\(.kind) \(.metadata.name // .metadata.generateName)"')
  if [[ -n $subject ]]; then
    hook::deny "$subject has no owner: set metadata.labels.owner to the team that runs it, for example 'owner: payments'"
  else
    hook::allow
  fi
}

hook::run "$@"
