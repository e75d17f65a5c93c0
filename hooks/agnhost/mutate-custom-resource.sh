#!/usr/bin/env bash
#
# Two webhooks of one hook change a custom resource one after the other: mutation-start brings mutation-stage-1, and
# that brings mutation-stage-2. Shows a handler for each binding; the first is asked on changes too. What the schema
# of the resource does not know, the API server removes again.

source "${0%/*}/../lib/shell_lib.sh"

__config__() {
  local stage operations
  echo "configVersion: v1"
  echo "kubernetesMutating:"
  for stage in 1 2; do
    operations="CREATE, UPDATE"
    ((stage == 1)) || operations=CREATE
    cat <<YAML
- name: mutate-custom-resource-stage-$stage.agnhost.example.com
  namespace:
    labelSelector:
      matchExpressions:
      - {key: ${AGNHOST_SELECTOR_LABEL:-webhook-e2e}, operator: In, values: ["true", mutate-custom-resource]}
  rules:
  - apiGroups: [${AGNHOST_CUSTOM_GROUP:-webhook-e2e.example.com}]
    apiVersions: ["*"]
    resources: ["*"]
    operations: [$operations]
YAML
  done
}

# add_after <key> <new key>: the new key is added to the data when the key there says yes.
add_after() {
  hook::patch "$(context::jq -c --arg key "$1" --arg new "/data/$2" '
    if .review.request.object.data[$key]? == "yes" then [{op: "add", path: $new, value: "yes"}] else [] end')"
}

__on_mutating::mutate-custom-resource-stage-1.agnhost.example.com() {
  add_after mutation-start mutation-stage-1
}

__on_mutating::mutate-custom-resource-stage-2.agnhost.example.com() {
  add_after mutation-stage-1 mutation-stage-2
}

hook::run "$@"
