#!/usr/bin/env bash
#
# Two webhooks of one hook change a ConfigMap one after the other: mutation-start brings mutation-stage-1, and that
# brings mutation-stage-2. Shows that the second sees what the first did, and a matchCondition that keeps the
# ConfigMap skip-me out.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  local stage
  echo "configVersion: v1"
  echo "kubernetesMutating:"
  for stage in 1 2; do
    cat <<YAML
- name: mutate-configmaps-stage-$stage.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", mutate-configmaps]}
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  matchConditions:
  - {name: not-skip-me, expression: "object.metadata.name != 'skip-me'"}
YAML
  done
}

__main__() {
  hook::patch "$(context::jq -c '
    .review.request.object.data
    | if .["mutation-stage-1"] == "yes" then [{op: "add", path: "/data/mutation-stage-2", value: "yes"}]
      elif .["mutation-start"] == "yes" then [{op: "add", path: "/data/mutation-stage-1", value: "yes"}]
      else [] end')"
}

hook::run "$@"
